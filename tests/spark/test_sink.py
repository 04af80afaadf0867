"""A sink says what makes no sense when it is made, before anything is written."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.spark.sink import Sink

GOOD: dict[str, Any] = {"application_id": "app", "bootstrap_servers": "127.0.0.1:9092", "topics": ["t"]}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"application_id": ""}, "application_id=''"),
        ({"application_id": "a" * 201}, "1 to 200 characters"),
        ({"topics": []}, "topics="),
        ({"topics": "orders"}, "topics='orders': it must be a list"),
        ({"compression": "zip"}, "compression='zip': it must be one of none, gzip"),
        ({"transaction_timeout_ms": 0}, "transaction_timeout_ms=0: it must be 1 or more"),
        ({"transaction_timeout_ms": "600000"}, "transaction_timeout_ms='600000': it must be a whole number"),
        ({"tasks": 0}, "tasks=0: it must be 1 or more"),
        ({"attempts": -1}, "attempts=-1: it must be 1 or more"),
        ({"attempts": None}, "attempts=None: it must be a whole number"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], said: str) -> None:
    Sink(**GOOD)
    with pytest.raises(ValueError, match=said):
        Sink(**GOOD | wrong)
