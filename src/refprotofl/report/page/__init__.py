"""The report page: what runs did, as one file that needs nothing else, and the same page live."""
