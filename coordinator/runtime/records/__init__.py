"""One record of the log: what its bytes say, whether decoding them is safe, and whether its writer may write it."""
