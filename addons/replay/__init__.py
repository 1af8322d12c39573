"""Replay recorded sessions through the real planners, price them and compare them."""
