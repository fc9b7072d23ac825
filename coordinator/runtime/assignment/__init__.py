"""What one process does with the partitions that are its own: reading, handing out, how far each is decided."""
