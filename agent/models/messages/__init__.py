"""The Messages API of Anthropic, and of the servers that speak it."""
