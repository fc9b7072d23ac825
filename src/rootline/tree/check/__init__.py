"""What must hold in a version and from one to the next, and what changed between them."""
