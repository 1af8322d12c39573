"""Texts of people and models, read without the vocabulary of any language."""
