"""Scan planning: leaves, data files, and the deletes that apply to them."""
