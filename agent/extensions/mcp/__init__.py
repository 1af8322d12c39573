"""MCP: servers that offer tools, resources and prompts (https://modelcontextprotocol.io)."""
