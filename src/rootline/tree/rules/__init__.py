"""What an intent may bring and take, whichever its kind: files, leaves, vectors, removals, isolation."""
