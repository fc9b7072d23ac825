"""An Iceberg table of V1 to V3 read as a table of ours."""
