"""What attackers could learn from a finished run: who was in its data, and what a class prototype looks like inside."""
