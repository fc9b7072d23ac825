"""The extra `s3`: a bucket whose store is away is an error with a code, from Amazon's client."""

import os
import socket

import rootline

with socket.socket() as nobody:
    nobody.bind(("127.0.0.1", 0))  # it does not listen
    os.environ |= {
        "ROOTLINE_S3__ENDPOINT": f"http://127.0.0.1:{nobody.getsockname()[1]}",
        "ROOTLINE_S3__ACCESS_KEY_ID": "nobody",
        "ROOTLINE_S3__SECRET_ACCESS_KEY": "nothing",
        "ROOTLINE_S3__REQUEST_TIMEOUT_S": "2",
    }
    with rootline.connect("s3://bucket/lake", log="sqlite:///./log") as lake:
        try:
            lake.list_tables()
        except rootline.Unavailable as error:
            code = error.code
        else:
            raise SystemExit("a store that is away has listed tables")
assert code == "store-unavailable", code
