"""The interactive front end: reads user input and runs turns."""
