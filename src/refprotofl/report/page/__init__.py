"""The report page of runs, as a self-contained file or live."""
