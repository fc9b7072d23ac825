"""The demo of `rootline demo`: real flights through all of Rootline, with every result compared with pandas."""
