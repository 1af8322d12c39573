"""The version of the program, in a module without imports."""

__version__ = "0.2.0"
