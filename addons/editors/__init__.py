"""The front end for editors: a server of the Agent Client Protocol on standard input and output
(https://agentclientprotocol.com). Only this package imports `acp`.
"""
