"""`rootline table alter`, `drop`, `restore`, `replace`."""
