"""The building blocks of every method: server, client, messages, local training."""
