"""The asyncio shell around the commit machine.

Owns: tasks, queues, deadlines, metrics. Does not own: any decision (`rootline.coordinator.protocol` makes them).
Invariants: one task owns a table; every queue is bounded; every wait has a deadline.
"""
