"""The agent as a library: what a program uses (`from ctxagent import Agent`), and what the command
line is built on."""
