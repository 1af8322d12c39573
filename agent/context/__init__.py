"""The model's context: the view, its token counts, and the request built from it."""
