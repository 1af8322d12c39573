"""Writing summaries: requests, merging, shortening and background preparation."""
