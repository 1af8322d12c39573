"""What happened, kept for good: entries, the log, sessions."""
