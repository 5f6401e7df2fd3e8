"""Basics for every package: errors, random streams, state, units, devices."""
