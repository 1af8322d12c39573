"""Settings: the layers they come from, their types, and trust in files of a project."""
