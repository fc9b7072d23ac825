"""The extra `redis`: a task queue whose Redis is away is an error with a code, from Redis' client."""

import socket
import subprocess
import sys
from pathlib import Path

with socket.socket() as nobody:
    nobody.bind(("127.0.0.1", 0))  # it does not listen
    redis = f"redis://127.0.0.1:{nobody.getsockname()[1]}/0"
    lake = ["--warehouse", "./lake", "--log", "kafka://127.0.0.1:1"]  # without Kafka nothing is shared
    done = subprocess.run(
        [str(Path(sys.executable).with_name("rootline")), "tasks", "list", *lake],
        env={"ROOTLINE_REDIS__URL": redis},
        capture_output=True,
        text=True,
        check=False,
    )
assert done.returncode == 3, done
assert "redis-unavailable" in done.stderr, done.stderr
