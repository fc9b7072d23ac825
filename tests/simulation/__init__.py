"""The seeded simulation: real machine, real shell, real tree, in virtual time, against faults and crashes."""
