"""What a comparison tells: as a table and curves for a terminal, as a document for programs, and as
one page of HTML. Everything here is a pure function of `outcome.Comparison`.
"""
