"""What a scan reads: leaves, files, and the deletes that reach them."""
