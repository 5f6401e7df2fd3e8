"""A run's events for the trackers that people already use; nothing of this is in the training loop."""
