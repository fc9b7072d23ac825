"""The parts of a root's header: a file for each, with its value types and its keys of the file metadata."""
