"""Feature extractors f: (n, channels, height, width) -> (n, dim), always apart from the head above them."""
