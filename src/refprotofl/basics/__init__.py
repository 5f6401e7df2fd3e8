"""What every room may use: named random streams, plain state and its digests, the user's own code by name, units."""
