"""The demo of `rootline demo`: real flights through all of Rootline, every answer compared with pandas."""
