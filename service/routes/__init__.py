"""The REST interface: thin routes from `veilsum.protocol.rest`'s paths to the coordinator."""
