"""The demos: real flights through all of Rootline, every answer compared with pandas."""
