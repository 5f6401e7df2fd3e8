"""Measurements that the command `bench` prints."""
