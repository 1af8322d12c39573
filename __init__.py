"""ctxagent: a terminal coding agent that never runs out of context and never loses anything."""

__version__ = "0.1.0"
