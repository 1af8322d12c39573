"""Web pages: address checks, download, and conversion to text."""
