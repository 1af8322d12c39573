"""`python -m ctxagent` is the same as the `ctxagent` command."""

from .agent.cli.main import main

if __name__ == "__main__":
    main()
