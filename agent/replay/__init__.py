"""Replay: recorded sessions played again through the real planners, priced and compared."""
