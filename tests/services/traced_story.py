"""The demo with Spark as a program that sends its traces where the environment says; arguments as `spark_demo`."""

from __future__ import annotations

import sys

from rootline.cli.service_process import telemetry
from rootline.demo.spark_demo import main

if __name__ == "__main__":
    with telemetry("rootline-demo"):
        code = main()
    sys.exit(code)
