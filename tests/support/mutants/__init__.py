"""Changes a copy of a room's code, and counts the changes that the room's tests notice."""
