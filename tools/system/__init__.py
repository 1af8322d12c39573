"""Processes, files and characters of the system; nothing here knows of agents."""
