"""Rules that several kinds of intent share: files, leaves, vectors, removals, isolation."""
