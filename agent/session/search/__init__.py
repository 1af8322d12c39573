"""Full-text search over everything that a project's sessions recorded. `index` is the entry point
and the database, which is a cache. `rows` splits log lines into rows, `query` ranks and quotes
matches, and `recall` serves the tool Recall.
"""

from .index import INDEX_NAME, SearchIndex
from .query import Hit

__all__ = ["INDEX_NAME", "Hit", "SearchIndex"]
