"""The sandbox for commands, and the redaction of secrets in stored text."""
