"""Measurements against yardsticks, interleaved in one run: `make bench`."""
