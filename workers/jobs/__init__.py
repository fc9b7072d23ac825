"""Jobs execute plans: one file for related kinds of maintenance.

Owns: the order of the steps, the meaning of their outcomes. Does not own: the plans (`rootline.maintenance`).
Invariants: only the removal steps of expiry and sweep delete objects. The outcome of an intent is never assumed: a job
reads it from the table's root or from the verdict.
"""
