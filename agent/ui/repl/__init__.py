"""The interactive front end: words in, turns out."""
