"""`ask_for_fork.py SOCKET MODULE WORDS…`: in the place of `python -m MODULE WORDS…`, from one who forks it.

It hands over its words, environment, folder and streams, and stays until what was forked has ended: Spark looks at it.
"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(sys.argv[1])
    said = {"words": sys.argv[2:], "variables": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109 -- starts sooner
    socket.send_fds(asked, [b"."], [0, 1, 2])
    asked.sendall(json.dumps(said).encode())
    asked.shutdown(socket.SHUT_WR)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    asked.recv(1)
