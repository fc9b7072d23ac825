"""Reading rows: data files, delete files, and the execution of a scan."""
