"""Rules that several kinds of intent share: files, leaves, deletes, vectors, isolation."""
