"""Sessions: the entries of a log, the log itself, and all that is folded from it."""
