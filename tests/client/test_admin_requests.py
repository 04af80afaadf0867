"""What the admin client asks of which node, and which answers are errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.client.admin import Admin
from fencepost.client.errors import BrokerError
from fencepost.protocol.errors import ErrorCode

EXISTS = ErrorCode.TOPIC_ALREADY_EXISTS


class Deadline:
    """One that is never over."""

    async def within(self, work: Awaitable[Any]) -> Any:
        return await work

    async def pause(self, _: object) -> None:
        pass


class Cluster:
    """Two nodes; notes what they are asked, and answers with what it was given."""

    def __init__(self, *answers: Any) -> None:
        self.nodes = {1: ("a", 9), 2: ("b", 9)}
        self.features = SimpleNamespace(levels={"transaction.version": 1})
        self.answers = list(answers)
        self.asked: list[tuple[int, Any]] = []
        self.forgotten: list[str] = []

    def deadline(self, _: str) -> Deadline:
        return Deadline()

    async def refresh(self, _: object) -> None:
        pass

    async def call(self, node: int, request: Any) -> Any:
        self.asked.append((node, request))
        return self.answers.pop(0)

    async def call_controller(self, request: Any, *, deadline: object) -> Any:  # noqa: ARG002
        return await self.call(0, request)

    async def topic(self, name: str, *_: object, **__: object) -> Any:
        return SimpleNamespace(partition_count=2 if name in self.forgotten else 1, leaders={0: 1})

    async def leader(self, *_: object) -> int:
        return 1

    async def coordinator(self, *_: object) -> int:
        return 2 if "id" in self.forgotten else 1

    def forget_topic(self, name: str) -> None:
        self.forgotten.append(name)

    def forget_coordinator(self, _: int, name: str) -> None:
        self.forgotten.append(name)

    def ask_features_again(self) -> None:
        self.forgotten.append("features")


def admin(cluster: Cluster) -> Admin:
    async def made() -> Admin:
        return Admin("127.0.0.1:9")

    found = asyncio.run(made())
    found._cluster = cluster  # type: ignore[assignment]
    return found


@pytest.mark.parametrize("exist_ok", [True, False])
@pytest.mark.parametrize("error", [ErrorCode.NONE, EXISTS, ErrorCode.INVALID_PARTITIONS])
def test_a_topic_is_made_as_it_is_wanted_or_that_is_an_error(error: ErrorCode, exist_ok: bool) -> None:
    cluster = Cluster(SimpleNamespace(topics=[SimpleNamespace(error_code=error, error_message="no")]))
    work = admin(cluster).create_topic("t", partitions=3, config={"retention.ms": "5"}, exist_ok=exist_ok)
    if error is ErrorCode.NONE or (error is EXISTS and exist_ok):
        asyncio.run(work)
    else:
        with pytest.raises(BrokerError, match="'t' was not created: no"):
            asyncio.run(work)
    ((_, request),) = cluster.asked
    (wanted,) = request.topics
    assert (wanted.name, wanted.num_partitions) == ("t", 3)
    assert [(each.name, each.value) for each in wanted.configs] == [("retention.ms", "5")]


@pytest.mark.parametrize(("level", "kind"), [(0, 2), (1, 1), (2, 1)])
@pytest.mark.parametrize("errors", [(0, [0, 0]), (0, [0, 95]), (95, [])], ids=["none", "of a feature", "of all"])
def test_a_feature_is_changed_or_that_is_an_error(level: int, kind: int, errors: tuple[int, list[int]]) -> None:
    results = [SimpleNamespace(error_code=error, error_message="no") for error in errors[1]]
    cluster = Cluster(SimpleNamespace(error_code=errors[0], error_message="no", results=results))
    work = admin(cluster).update_feature("transaction.version", level)
    if any((errors[0], *errors[1])):
        with pytest.raises(BrokerError, match="was not changed: no"):
            asyncio.run(work)
    else:
        asyncio.run(work)
    ((_, request),) = cluster.asked
    (wanted,) = request.feature_updates
    assert (wanted.max_version_level, wanted.upgrade_type, wanted.allow_downgrade) == (level, kind, kind == 2)


def test_transactions_of_all_nodes_are_listed_in_the_states_that_were_asked_for() -> None:
    def answer(name: str) -> Any:
        found = SimpleNamespace(transactional_id=name, transaction_state="Ongoing")
        return SimpleNamespace(error_code=0, transaction_states=[found])

    cluster = Cluster(answer("b"), answer("a"))
    found = asyncio.run(admin(cluster).list_transactions(["Ongoing"]))
    assert list(found.items()) == [("a", "Ongoing"), ("b", "Ongoing")]
    assert [(node, list(request.state_filters)) for node, request in cluster.asked] == [
        (1, ["Ongoing"]),
        (2, ["Ongoing"]),
    ]


def test_a_coordinator_that_has_moved_is_looked_for() -> None:
    def answer(error: ErrorCode) -> Any:
        found = SimpleNamespace(transactional_id="id", error_code=error, transaction_state="Empty", topics=[])
        found.producer_id = found.producer_epoch = found.transaction_timeout_ms = found.transaction_start_time_ms = 0
        return SimpleNamespace(transaction_states=[found])

    cluster = Cluster(answer(ErrorCode.NOT_COORDINATOR), answer(ErrorCode.NONE))
    found = asyncio.run(admin(cluster).describe_transaction("id"))
    assert found is not None
    assert [node for node, _ in cluster.asked] == [1, 2]


def test_how_many_partitions_there_are_is_asked_each_time() -> None:
    assert asyncio.run(admin(Cluster()).partitions("t")) == 2
