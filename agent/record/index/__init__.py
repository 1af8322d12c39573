"""The index: full-text search over everything a project's sessions recorded. `fulltext` is the
contract and the database, a cache; `pieces` reads lines of logs into rows, `hits` ranks what was
found and shows where."""

from .fulltext import NAME, PATIENCE, Found, Hit, Index

__all__ = ["NAME", "PATIENCE", "Found", "Hit", "Index"]
