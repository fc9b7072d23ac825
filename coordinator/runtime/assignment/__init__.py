"""The partitions that one process is assigned: reading them, handing records to tables, and tracking progress."""
