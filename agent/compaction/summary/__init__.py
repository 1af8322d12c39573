"""Writing a summary: what to ask, merging, shortening, and preparing it in the background."""
