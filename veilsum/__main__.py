"""`python -m veilsum` is `veilsum`."""

from veilsum.cli import main

main()
