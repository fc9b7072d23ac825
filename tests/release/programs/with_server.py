"""The extra `server`: `rootline up` answers over HTTP, and the REST catalog with it."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

command = [str(Path(sys.executable).with_name("rootline")), "up", "--root", "./lake", "--http-port", "0", "--json"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
    try:
        assert running.stdout is not None
        url = json.loads(running.stdout.readline())["url"]
        for path in ("/healthz", "/metrics", "/v1/config", "/"):
            with urlopen(url + path, timeout=30) as answer:
                assert answer.status == 200, path
    finally:
        running.send_signal(signal.SIGTERM)
        running.stdout.read()
assert running.returncode == 0, running.returncode
