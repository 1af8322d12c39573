"""The Chat Completions protocol, which most servers support in different dialects."""
