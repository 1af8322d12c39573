"""How the view gets smaller: one module for each layer."""
