"""The command line: one module per subcommand."""

import sys

if sys.platform == "win32":  # before imports that fail on Windows
    sys.exit("ctxagent runs on Linux and macOS. On Windows run it inside WSL: `wsl --install`.")
