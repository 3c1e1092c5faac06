"""Reproductions of the papers: experiment files, tables, analyses and reports. Not installed."""
