"""Reports of a comparison for terminals, programs and browsers, each a pure function of it."""
