"""The command line: one module for each subcommand."""

import sys

if sys.platform == "win32":  # before a module is imported that is not there
    sys.exit("ctxagent runs on Linux and macOS. On Windows run it inside WSL: `wsl --install`.")
