"""Language servers: programs that report the errors in a file."""
