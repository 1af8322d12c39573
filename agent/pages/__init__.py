"""Pages and drawings in HTML and SVG, and the figures in them."""
