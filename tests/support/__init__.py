"""Shared test support: a strict request validator, a loopback server that uses it, and more."""
