"""Studies: many runs planned together, executed once and evaluated with paired statistics."""
