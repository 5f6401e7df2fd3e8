"""The run folder: events, checkpoints, private client states, digests, resume."""
