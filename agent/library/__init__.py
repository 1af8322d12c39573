"""The agent as a library for programs (`from ctxagent import Agent`) and for the command line."""
