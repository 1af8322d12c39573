"""Static analysis of shell commands: their parts, read-only commands, and hidden commands."""
