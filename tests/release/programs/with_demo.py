"""The extra `demo`: `rootline demo`."""

import subprocess
import sys
from pathlib import Path

subprocess.run([str(Path(sys.executable).with_name("rootline")), "demo"], check=True)
