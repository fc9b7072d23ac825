"""Parked records of tables that cannot go on: their topic, and the records that name them."""
