"""What concerns every HTTP request: who sends it, what it costs, and how it is refused."""
