"""The command line.

Owns: arguments, what is printed, exit codes. Does not own: any behaviour behind them.
Invariants: `--help` imports neither pyarrow nor an adapter; no command shows a traceback.
"""
