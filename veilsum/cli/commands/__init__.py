"""The commands, one module for each. They import most of their dependencies when they run."""
