"""Differential privacy of a run: the mechanisms that protect samples or clients, and the accounting of epsilon."""
