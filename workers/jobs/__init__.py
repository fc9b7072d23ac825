"""Jobs carry plans out: one file for each kind of maintenance.

Owns: the order of the steps, and what their outcomes mean. Does not own: the plans (`rootline.maintenance`).
Invariants: a job deletes nothing; an unknown outcome is looked up, never assumed.
"""
