"""Engines: they run the clients. Every engine gives them encoded bytes and takes encoded bytes back."""
