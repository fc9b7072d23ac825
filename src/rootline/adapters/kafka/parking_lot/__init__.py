"""Parking, as one member of the group and as an operator do it."""
