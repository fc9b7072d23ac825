"""What stands between the brokers' answers and the client library: no batch is decompressed before it is measured."""
