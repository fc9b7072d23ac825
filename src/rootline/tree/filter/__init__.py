"""Row filters: parsed, bound, and held against statistics."""
