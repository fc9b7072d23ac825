"""`kcat -P` for machines that have no kcat: the options that docs/foreign-clients.md uses, on the same library.

Owns: one record for each line of stdin. Does not own: anything else that kcat does.
Invariants: an option that is not known here ends it, so that the page shows nothing that was not run.
"""

from __future__ import annotations

import argparse
import sys

from confluent_kafka import Producer


def main() -> None:
    parser = argparse.ArgumentParser(prog="kcat", allow_abbrev=False)
    parser.add_argument("-P", action="store_true", required=True)
    parser.add_argument("-b", required=True)
    parser.add_argument("-t", required=True)
    parser.add_argument("-k", required=True)
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-X", action="append", default=[])
    words = parser.parse_args()
    options = dict(option.split("=", 1) for option in words.X)
    producer = Producer({"bootstrap.servers": words.b, **options})
    headers = [(name, value.encode()) for name, _, value in (header.partition("=") for header in words.H)]
    for line in sys.stdin.buffer.read().splitlines():
        producer.produce(words.t, line, words.k.encode(), headers=list(headers))
    sys.exit(1 if producer.flush(30) else 0)


main()
