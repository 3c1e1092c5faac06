"""Results in other people's tools. Each module needs the library that it is named after, and imports nothing of the others."""
