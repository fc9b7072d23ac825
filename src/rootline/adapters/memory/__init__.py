"""Store, log and task queue in memory, for tests, simulations and `memory://`."""
