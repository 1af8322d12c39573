"""Export a session as Markdown for people, an HTML page for browsers, or JSON for programs. Each
export is one self-contained text made from the log and the files next to it.
"""
