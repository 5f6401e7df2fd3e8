"""Clients behind Flower: in its simulation on Ray, or on devices of their own. Nothing else here imports flwr."""
