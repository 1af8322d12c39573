"""Chat Completions, which most servers speak, each with a dialect of its own."""
