"""Redis, or Valkey: what several processes tell each other to save work. Nothing here decides anything."""
