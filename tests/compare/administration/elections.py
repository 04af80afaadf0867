"""What an administrator asks of leaders where every partition has its only one: by either type, and by none."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any, Final

from tests.compare.administration.walk import Administered, Case

from fencepost.protocol.messages import ElectLeadersRequest
from fencepost.protocol.messages.elect_leaders import ElectLeadersTopicPartitions as _Partitions

_VERSIONS: Final = (0, 1, 2)
_TYPES: Final = (0, 1, 2, -1)
_TIMEOUTS: Final = (60_000, 0, -1)
_Asked = list[tuple[str, list[int]]]


def elections(nodes: Administered, here: str, there: str) -> Iterator[Case]:
    """`here` is a topic of three partitions, `there` one of one."""
    named: tuple[_Asked | None, ...] = (
        None, [], [(here, [])], [(here, [0])], [(here, [2, 0]), (there, [0])], [(here, [0, 9, -1])],
        [("no.such", [0])], [("no.such", [])], [("a b", [0]), ("", [0])], [(here, [0, 0])],
        [(here, [0]), (there, [0]), (here, [1, 0])],
    )  # fmt: skip
    for version, election_type, timeout_ms, asked in product(_VERSIONS, _TYPES, _TIMEOUTS, named):
        if version or not election_type:
            topics = None if asked is None else [_Partitions(topic=name, partitions=which) for name, which in asked]
            request = ElectLeadersRequest(election_type=election_type, topic_partitions=topics, timeout_ms=timeout_ms)
            only = partial(_only_of, {here, there}) if asked is None else _all
            yield f"leaders of {asked}, {election_type}", partial(nodes.ask, request, version, only)


def _all(answer: Any) -> Any:
    return answer


def _only_of(names: set[str], answer: Any) -> Any:
    """Of all topics only these, in the order of their names: each node has some of its own."""
    if isinstance(answer, dict) and "replica_election_results" in answer:
        results = [one for one in answer["replica_election_results"] if one["topic"] in names]
        return answer | {"replica_election_results": sorted(results, key=lambda one: str(one["topic"]))}
    return answer
