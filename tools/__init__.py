"""The tools that a model may call. From `agent` they import only its errors and lazy helpers."""
