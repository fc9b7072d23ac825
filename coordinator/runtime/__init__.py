"""The asyncio shell around the commit machine.

Owns: tasks, queues, deadlines, metrics. Does not own: any decision (`rootline.coordinator.protocol` makes them).
Invariants: one task owns a table. Every queue is bounded. Every wait has a deadline.
"""
