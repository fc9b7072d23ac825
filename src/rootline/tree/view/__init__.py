"""A table's tree to look at: numbers, a picture, lines of text."""
