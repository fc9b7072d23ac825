"""Numbers that the specification asks for, each with the command that makes it."""
