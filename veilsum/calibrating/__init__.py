"""The work behind `veilsum calibrate`: a head from your own files, judged and drawn."""
