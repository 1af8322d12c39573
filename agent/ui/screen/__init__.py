"""Where the REPL shows and reads: the inline terminal, plain lines, and what a terminal can do."""
