"""The sandbox that commands run in, and secrets taken out of what is kept."""
