"""The methods that come with the package: a folder each, declared in its `__init__` (see `refprotofl.methods`)."""
