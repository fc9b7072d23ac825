"""Redis, or Valkey: what several processes tell each other to save work, and nothing that decides anything."""
