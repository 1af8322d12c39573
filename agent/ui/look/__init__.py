"""How things look: renderables for rich, made from plain values, and the styles they use."""
