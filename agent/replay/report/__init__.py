"""Reports of a comparison: a table and curves for a terminal, a document for programs, and one page
of HTML. Each is a pure function of `results.Comparison`.
"""
