"""The table while a batch is applied, and the changes that make it up."""
