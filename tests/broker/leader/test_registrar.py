"""What a leader asks of the coordinator on its own node."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final, cast

from fencepost.broker.leader.registrar import Answer, LocalRegistrar, Question
from fencepost.coordinator.transaction.answers import Added
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, Lsn, ProducerId, TopicPartition

PARTITIONS: Final = (TopicPartition("t", 0), TopicPartition("t", 1))
PID, EPOCH, WRITTEN, ADDED = ProducerId(7), Epoch(3), Lsn(50), Lsn(40)


class Coordinator:
    """Adds to transactions of new clients only, and has one partition verified."""

    def add_partitions(self, name: str, pid: int, epoch: int, partitions: Sequence[TopicPartition], kind: int) -> Added:
        assert (name, pid, epoch, partitions) == ("id", PID, EPOCH, PARTITIONS)
        return Added(ErrorCode.NONE if kind == 2 else ErrorCode.UNSUPPORTED_VERSION, ADDED)

    def verify_partitions(
        self, name: str, pid: int, epoch: int, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        assert (name, pid, epoch, partitions) == ("id", PID, EPOCH, PARTITIONS)
        return dict(zip(PARTITIONS, (ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE), strict=True))


def asked(add: bool) -> Answer:
    storage: Any = SimpleNamespace(lsn=WRITTEN)
    registrar = LocalRegistrar(cast(Any, Coordinator()), storage)
    return registrar.ask(Question("id", PID, EPOCH, PARTITIONS, add))


def test_what_a_write_adds_is_added_under_the_rules_of_new_clients_and_waited_for() -> None:
    """KIP-890 part 2: only these rely on it, and get a new epoch with each end."""
    assert asked(add=True) == Answer(dict.fromkeys(PARTITIONS, ErrorCode.NONE), ADDED)


def test_a_verification_waits_for_all_that_it_may_have_seen() -> None:
    errors = dict(zip(PARTITIONS, (ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE), strict=True))
    assert asked(add=False) == Answer(errors, WRITTEN)
