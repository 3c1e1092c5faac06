"""The command line above the packages; it imports them lazily."""
