"""Reading and storing metadata objects: heads, roots, leaves, vectors, pages."""
