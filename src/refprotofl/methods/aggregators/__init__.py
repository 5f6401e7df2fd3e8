"""Aggregators: from client updates to one server update."""
