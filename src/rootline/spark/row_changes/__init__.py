"""Changes of rows that run on the cluster."""
