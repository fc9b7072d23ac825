"""Every verdict that is told is counted once and logged once: three accounts of one run, held against each other."""
