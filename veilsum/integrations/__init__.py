"""Results in other libraries. Each module needs only the library that it is named after."""
