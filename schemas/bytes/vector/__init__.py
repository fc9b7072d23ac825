"""Deletion vectors as bytes, and the Puffin files that hold them."""
