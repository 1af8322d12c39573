"""The layers that act before a summary: demote, microcompact and truncate."""
