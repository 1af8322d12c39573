"""Full-text search over everything that a project's sessions recorded. `index` is the entrance and
the database, a cache; `rows` cuts lines of logs into rows, `query` ranks what matches and quotes
it, `recall` answers the tool Recall."""

from .index import INDEX_NAME, SearchIndex
from .query import Hit

__all__ = ["INDEX_NAME", "Hit", "SearchIndex"]
