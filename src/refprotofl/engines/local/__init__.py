"""Clients on this machine, in this process or in several; their states are files in the run folder."""
