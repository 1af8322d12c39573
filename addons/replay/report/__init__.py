"""Reports of a comparison for terminals, programs and browsers; each is a pure function."""
