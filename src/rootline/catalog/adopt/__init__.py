"""Reading an Iceberg table of V1 to V3 as a table of ours."""
