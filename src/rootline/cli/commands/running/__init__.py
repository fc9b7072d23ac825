"""Commands about a lake that is running: how it is, and stopping its tables for a while."""
