"""Prints the policies beside this file for one lake.

    python deploy/policies/fill.py s3://lake/tables worker                       one role: a policy to attach
    python deploy/policies/fill.py s3://lake/tables worker=KEY1 reader=KEY2 …    all of them: one policy of the bucket

A principal may have several roles (`worker=KEY1 expiry=KEY1`). `--demand-if-none-match` allows only PUTs that create
an object, for stores that know the condition key `s3:if-none-match` (Amazon S3 does, versitygw does not).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HERE = Path(__file__).parent
ROLES = sorted(path.stem for path in HERE.glob("*.json"))
CREATES = {"Null": {"s3:if-none-match": "false"}}


def statements(role: str, bucket: str, prefix: str) -> list[dict[str, Any]]:
    """What `role` may do in this lake."""
    text = (HERE / f"{role}.json").read_text().replace("BUCKET", bucket)
    text = text.replace("PREFIX/", f"{prefix}/" if prefix else "")
    found: list[dict[str, Any]] = json.loads(text)["Statement"]
    return found


def main(arguments: list[str]) -> str:
    """The policy as JSON, or an exit that says how this is called."""
    words = [word for word in arguments if word != "--demand-if-none-match"]
    parts = urlsplit(words[0]) if words else None
    asked = [word.partition("=") for word in words[1:]]
    if parts is None or parts.scheme != "s3" or not parts.netloc or not asked:
        sys.exit(__doc__)
    if set('*?$"\\') & {*words[0]}:
        sys.exit(f"{words[0]!r}: *, ?, $, quotes and backslashes mean something else in a policy: write it by hand")
    unknown = [role for role, _, _ in asked if role not in ROLES]
    if unknown:
        sys.exit(f"there is no role {unknown[0]!r}: write one of {', '.join(ROLES)}")
    if len(asked) > 1 and not all(key for _, _, key in asked):
        sys.exit("several roles are one policy of the bucket: write ROLE=PRINCIPAL for each of them")
    written: list[dict[str, Any]] = []
    for number, (role, _, principal) in enumerate(asked):
        for statement in statements(role, parts.netloc, parts.path.strip("/")):
            if principal:
                name = f"{role.title()}{number}{statement.pop('Sid')}"
                statement = {"Sid": name, "Principal": {"AWS": [principal]}, **statement}
            puts = (statement["Effect"], statement["Action"]) == ("Allow", "s3:PutObject")
            if puts and "--demand-if-none-match" in arguments:
                statement["Condition"] = CREATES
            written.append(statement)
    return json.dumps({"Version": "2012-10-17", "Statement": written}, indent=2)


if __name__ == "__main__":
    print(main(sys.argv[1:]))
