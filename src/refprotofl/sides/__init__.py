"""The two sides of the wire, each put together from what it alone has."""
