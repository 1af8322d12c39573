"""Servers of the Model Context Protocol (https://modelcontextprotocol.io): their tools."""
