"""What every method is made of: a server, a client, declared messages, aggregation, local training, guards."""
