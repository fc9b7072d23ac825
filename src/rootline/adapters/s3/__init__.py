"""Tables in an S3 bucket."""
