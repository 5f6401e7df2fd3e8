"""The search for good settings, on data that the clients hold out."""
