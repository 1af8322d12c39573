"""The search for regular expressions, in files and in texts."""
