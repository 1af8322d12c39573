"""The context of the model: the view, its sizes, and the request made from it."""
