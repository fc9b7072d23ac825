"""Which headers name a trace."""

from __future__ import annotations

import pytest

from rootline.schemas.bytes.record_headers import TraceContext, distinct_traces, trace_headers, trace_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01".encode()


def test_a_record_names_its_trace_in_the_header_of_the_standard() -> None:
    found = trace_of((("content-type", b"x"), *trace_headers(GOOD)))
    assert found == TraceContext(TRACE, SPAN, True)
    assert found is not None
    assert found.header == GOOD


def test_a_trace_that_is_not_sampled_is_still_a_trace() -> None:
    found = trace_of((("traceparent", f"00-{TRACE}-{SPAN}-00".encode()),))
    assert found == TraceContext(TRACE, SPAN, False)


def test_a_later_version_of_the_standard_may_say_more() -> None:
    assert trace_of((("traceparent", b"cc-" + GOOD[3:] + b"-what-comes-later"),)) is not None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"ff-" + GOOD[3:],
        GOOD + b"-more",
        GOOD.upper(),
        GOOD[:-1],
        GOOD + b"\n",
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        b"cc-" + GOOD[3:] + b"-" + b"x" * 1_000_000,
        b"\xff\xfe",
    ],
)
def test_what_is_not_well_formed_is_no_trace(value: bytes | None) -> None:
    assert trace_of((("traceparent", value),)) is None


def test_of_several_headers_the_last_one_that_says_anything_counts() -> None:
    other = f"00-{'1' * 32}-{SPAN}-01".encode()
    found = trace_of((("traceparent", other), ("traceparent", GOOD), ("traceparent", b"junk")))
    assert found is not None
    assert found.trace_id == TRACE


def test_a_commit_names_each_of_its_traces_once_and_only_the_first_few() -> None:
    contexts = [TraceContext(f"{number % 5:032x}", SPAN, True) for number in range(1, 20)]
    assert distinct_traces([None, *contexts], 3) == (f"{1:032x}", f"{2:032x}", f"{3:032x}")
    assert distinct_traces([None], 3) == ()
