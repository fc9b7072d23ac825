"""Checks of definitions, leaves and adopted tables that do not need the live set of the table."""
