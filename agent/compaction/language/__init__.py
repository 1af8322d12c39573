"""What people and models write: `words` reads any language, the other modules patterns of some."""
