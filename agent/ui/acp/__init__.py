"""The front end for editors: a server of the Agent Client Protocol on standard input and output
(https://agentclientprotocol.com). The package `acp` is imported in this room alone."""
