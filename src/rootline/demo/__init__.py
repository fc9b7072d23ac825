"""The demos: real flights through the whole of it, every answer checked."""
