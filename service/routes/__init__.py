"""The REST interface: thin routes from `protocol.rest`'s paths to the coordinator."""
