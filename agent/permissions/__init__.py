"""Permissions: decide which tool calls may run, by parsing paths and shell commands."""
