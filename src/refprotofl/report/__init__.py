"""Statistics and tables from finished runs."""
