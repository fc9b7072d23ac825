"""Heavy maintenance of tables, carried out by a Spark cluster."""
