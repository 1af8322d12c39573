"""The Messages API of Anthropic and of compatible servers."""
