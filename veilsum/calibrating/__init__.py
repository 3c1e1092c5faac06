"""The work behind `veilsum calibrate`: a head from one's own files, or with others through a round, explained, judged and drawn."""
