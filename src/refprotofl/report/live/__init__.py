"""The report page over HTTP while a run is in progress."""
