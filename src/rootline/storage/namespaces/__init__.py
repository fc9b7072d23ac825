"""Namespaces: their properties as a chain of objects, and which of them a warehouse has."""
