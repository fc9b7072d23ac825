"""The group of coordinators: who may be in it, and who is."""
