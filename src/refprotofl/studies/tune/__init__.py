"""`refprotofl tune`: the search for good settings on validation data."""
