"""How far each partition is decided, kept longer than the group's offsets."""
