"""Mutation testing: change a copy of a room's code and count the changes that its tests detect."""
