"""What can be told of a leaf or an adopted table without the live set."""
