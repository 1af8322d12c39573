"""Rich renderables made from plain values, and their styles."""
