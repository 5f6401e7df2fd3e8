"""The report page served while a run goes on: to this machine alone, from a process of its own."""
