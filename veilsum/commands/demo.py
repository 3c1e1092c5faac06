"""`veilsum demo`."""


def demo() -> None:
    """Being written."""
