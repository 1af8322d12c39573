"""Permissions: which tool calls may run, and the reading of shell commands that decides it."""
