"""Compaction: everything that makes the context smaller."""
