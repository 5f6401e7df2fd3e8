"""A relay between a node and its server: it counts what crosses, and can make the link as bad as a real one."""
