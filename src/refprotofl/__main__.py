"""`python -m refprotofl`."""

from refprotofl.cli import main

main()
