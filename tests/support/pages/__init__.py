"""The shell commands that README.md and the guide show: found, checked and run."""
