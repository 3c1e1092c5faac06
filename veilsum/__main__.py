"""Run the `veilsum` command by `python -m veilsum`."""

from veilsum.cli import main

main()
