"""Processes, files and text of the operating system. Nothing here depends on agents."""
