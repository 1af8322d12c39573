"""What the model sees: the view, its sizes, and the request made from it."""
