"""Where the coordinator keeps what it acknowledged: rows in a database, chunks in files."""
