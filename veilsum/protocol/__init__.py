"""veilsum's secure sum: vectors of integers go in, only their sum comes out. No I/O here."""
