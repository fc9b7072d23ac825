"""What can be decided about a leaf or an adopted table without the live set."""
