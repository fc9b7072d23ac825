"""The demo with Spark as a program that sends its traces where the environment says.

Its arguments are those of `examples.spark_demo`.
"""

from __future__ import annotations

import sys

from examples.spark_demo.__main__ import main
from rootline.cli.service_process import telemetry

if __name__ == "__main__":
    with telemetry("rootline-demo"):
        code = main()
    sys.exit(code)
