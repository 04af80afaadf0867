"""The blocking loop hands on what it was given, and takes records only inside of a block."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.client.blocking import exactly_once
from fencepost.client.blocking.exactly_once import ExactlyOnce, Transaction
from fencepost.client.errors import MisuseError
from fencepost.client.transaction_loop import State


def test_what_the_loop_is_given_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exactly_once, "TransactionLoop", lambda *given, **named: (given, named))
    consumer: Any = SimpleNamespace(_consumer="consumer")
    producer: Any = SimpleNamespace(_elsewhere="producer")
    loop: Any = ExactlyOnce(consumer, producer, max_records=7, linger_ms=8, retry_timeout_ms=9)._loop
    assert loop == (("consumer", "producer"), {"max_records": 7, "linger_ms": 8, "retry_timeout_ms": 9})


@pytest.mark.parametrize("state", State)
def test_records_are_taken_inside_of_the_block_only(state: State) -> None:
    """Afterwards they would be part of the next transaction, or of none."""
    sent: list[tuple[Any, ...]] = []
    producer: Any = SimpleNamespace(send=lambda *given, **_: sent.append(given))
    handed: Any = SimpleNamespace(state=state)
    transaction = Transaction(None, handed, None, producer)  # type: ignore[arg-type]
    if state is State.OPEN:
        transaction.send("out", b"1")
        assert sent == [("out", b"1")]
    else:
        with pytest.raises(MisuseError, match="not open"):
            transaction.send("out", b"1")
        assert not sent
