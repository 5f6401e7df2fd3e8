"""A federation on one machine: its parts put together, and the loop that runs it."""
