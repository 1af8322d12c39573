"""Renderables for rich, made from plain values, and their styles."""
