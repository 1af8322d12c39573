"""The search program that is used without ripgrep. `main.py` runs in its own process."""
