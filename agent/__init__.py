"""The agent: command line, loop, records, context, model and front ends."""
