"""How a table definition changes: the changes, what they make of a definition, and the rules that hold between two."""
