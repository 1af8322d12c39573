"""Settings: their layers, their types, and trust in project files."""
