"""Methods by name."""

from refprotofl.methods.registry import METHODS, Method, find_method

__all__ = ["METHODS", "Method", "find_method"]
