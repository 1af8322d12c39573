"""The screens that the REPL shows on: the inline terminal, and plain lines."""
