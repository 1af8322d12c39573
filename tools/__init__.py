"""The tools a model may call. Of `agent` they import its errors alone."""
