"""Shell commands, read before they run: their parts, what only looks, what hides a command."""
