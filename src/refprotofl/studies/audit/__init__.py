"""`refprotofl audit`: attacks on finished runs."""
