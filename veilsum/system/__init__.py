"""What needs the operating system: durable files, exposed secrets, worker processes."""
