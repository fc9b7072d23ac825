"""Reading rows: data files, delete files, and what a scan makes of them."""
