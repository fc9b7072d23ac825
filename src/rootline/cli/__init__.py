"""The command line.

Owns: arguments, printing, exit codes. Does not own: any behaviour behind them.
Invariants: listing the commands loads none of them, neither pyarrow nor an adapter. No command shows a traceback.
"""
