"""Views of a table's tree: an outline of numbers, an SVG picture, and lines of text."""
