"""Compressors of weight updates."""
