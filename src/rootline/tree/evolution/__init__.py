"""Schema and partition evolution: changes of a table definition, applying them, and the rules for each step."""
