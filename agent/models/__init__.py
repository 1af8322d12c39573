"""Models behind one protocol: the Messages API, and a scripted stand-in."""
