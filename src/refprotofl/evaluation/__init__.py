"""Evaluation protocols, metrics, and the scoring of models."""
