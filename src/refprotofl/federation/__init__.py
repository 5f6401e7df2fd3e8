"""The federation: server side, client side, the round loop and the session that runs it."""
