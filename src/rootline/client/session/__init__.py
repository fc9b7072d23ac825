"""The connection to a lake that everything of a process shares."""
