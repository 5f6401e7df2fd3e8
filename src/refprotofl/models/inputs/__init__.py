"""The torch side of each input kind, in the module of its name."""
