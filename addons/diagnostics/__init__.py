"""Language servers: programs that report the errors which the agent causes in files."""
