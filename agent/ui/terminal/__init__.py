"""The REPL's screens: the inline terminal, and plain lines."""
