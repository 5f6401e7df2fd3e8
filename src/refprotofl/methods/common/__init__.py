"""Shared parts of methods: weights and their compressed changes, class prototypes and learning from them."""
