"""Data from other programs, read part by part: what is usable is kept, what is not is named.

Servers, plugins, settings and recordings are written by programs that follow their formats loosely.
A reader here judges each part alone, so a wrong part never costs a good one.
"""
