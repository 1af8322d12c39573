"""What the project and the person add in files: commands of their own."""
