"""The extra `kafka`: a log on Kafka whose broker is away is an error with a code, from Kafka's client."""

import socket
import sys

import rootline

with socket.socket() as nobody:
    nobody.bind(("127.0.0.1", 0))  # it does not listen
    with rootline.connect("./lake", log=f"kafka://127.0.0.1:{nobody.getsockname()[1]}") as lake:
        try:
            lake.create_table("demo.trips", {"id": "long"}, timeout_s=5)
        except rootline.Unavailable as error:
            code = error.code
        else:
            raise SystemExit("a table was created without a broker")
assert code == "log-unavailable", code
assert {"aiokafka", "confluent_kafka"} & {*sys.modules}
