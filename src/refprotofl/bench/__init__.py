"""Measurements behind `refprotofl bench`."""
