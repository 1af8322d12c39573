"""The doctor checks the set-up (`setup`) or one session (`session`) and reports its findings.

Only `repair` changes anything, and it keeps a copy of the original.
"""
