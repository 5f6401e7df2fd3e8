"""Clients behind Flower: in its simulation on Ray, or on real devices. The only package that imports flwr."""
