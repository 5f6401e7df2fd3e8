"""Attacks against defences: many runs, one table, one figure."""
