"""One script a format."""
