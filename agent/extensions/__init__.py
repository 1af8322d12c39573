"""What the project and the user add in files: commands of their own."""
