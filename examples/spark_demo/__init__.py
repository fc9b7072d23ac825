"""The demo with Spark: real flights through a stream, changes of rows, a flush, and reads compared with pandas."""
