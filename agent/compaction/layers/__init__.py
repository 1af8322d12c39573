"""The layers that run before a summary: demote, microcompact, truncate and outline."""
