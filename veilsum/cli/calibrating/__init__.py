"""Fit a head to your own files, judge it and draw its report, for `veilsum calibrate`."""
