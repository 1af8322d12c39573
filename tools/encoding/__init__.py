"""The encodings of text files."""
