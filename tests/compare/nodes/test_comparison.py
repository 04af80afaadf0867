"""How two nodes are compared, tried without nodes: nothing that differs gets by unless a listed reason explains it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.compare.nodes.comparison import LEVELS, Comparison, Findings, Seen, differences
from tests.compare.nodes.connection import CLOSED, MUTE, Connection
from tests.compare.nodes.plain import Met, even_out

from fencepost.protocol.messages import ApiVersionsRequest


@dataclass
class Fake:
    """A node that answers what it is asked, or something else for some of it, and adds up."""

    otherwise: dict[int, int] = field(default_factory=dict)
    total: int = 0


@dataclass(frozen=True)
class Add:
    number: int
    counts: bool = True

    def take(self, node: Fake, /) -> int:
        answer = node.otherwise.get(self.number, self.number)
        node.total += answer if self.counts else self.number
        return answer


def is_seven(seen: Seen) -> bool:
    return bool(seen.step == Add(7, counts=False))


def compared(ours: Fake, steps: Any, level: int = 2, at_answers: bool = False) -> tuple[Findings, Comparison[Fake]]:
    findings = Findings({is_seven: (2,)}, level)
    comparison = Comparison("t", (Fake(), ours), findings, lambda node: node.total, at_answers=at_answers)
    comparison.go(steps)
    return findings, comparison


def test_nodes_that_do_the_same_are_compared_to_the_end() -> None:
    findings, comparison = compared(Fake(), [Add(1), Add(2)])
    assert (findings.compared, findings.faults, comparison.have_parted) == (2, [], False)
    findings.check()


def test_another_answer_is_a_fault_and_another_state_the_end() -> None:
    findings, comparison = compared(Fake({2: 3}), [Add(1), Add(2, counts=False), Add(2), Add(4)])
    assert (findings.compared, len(findings.faults), comparison.have_parted) == (3, 2, True)
    assert "kafka 2, fencepost 3" in findings.faults[0] and "Add(number=1" in findings.faults[0]
    with pytest.raises(AssertionError, match="2 differ"):
        findings.check()


def test_where_states_are_part_of_the_answers_these_end_it() -> None:
    findings, comparison = compared(Fake({1: 2}), [Add(1, counts=False), Add(1, counts=False)], at_answers=True)
    assert (findings.compared, len(findings.faults), comparison.have_parted) == (1, 1, True)


@pytest.mark.parametrize("level", LEVELS)
def test_a_reason_explains_at_its_levels_only(level: int) -> None:
    findings, _ = compared(Fake({7: 8}), [Add(7, counts=False), Add(1)], level)
    assert findings.compared == 2
    assert (len(findings.faults), dict(findings.explained)) == ((0, {"is_seven": 1}) if level == 2 else (1, {}))


def test_a_generator_is_told_what_was_seen_of_its_last_step() -> None:
    told = []

    def steps() -> Generator[Add, Seen, None]:
        for number in (1, 2):
            seen = yield Add(number)
            told.append((seen.answers, seen.states))

    compared(Fake(), steps())
    assert told == [((1, 1), (1, 1)), ((2, 2), (3, 3))]


def test_differences_are_named_as_deep_as_the_form_is_the_same() -> None:
    assert differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == [(".a[1].b", 2, 3)]
    assert differences({"a": [1]}, {"a": [1, 2]}) == [(".a", [1], [1, 2])]
    assert differences({"a": 1}, {"b": 1}) == [("", {"a": 1}, {"b": 1})]
    assert differences([1, 2], [1, 2]) == []


@dataclass(frozen=True)
class Say:
    """Kafka says the first, Fencepost the second."""

    theirs: Any
    ours: Any

    def take(self, node: Fake, /) -> Any:
        return self.ours if node.otherwise else self.theirs


@pytest.mark.parametrize(
    ("theirs", "ours", "faults"),
    [(None, "why", 0), ("", "why", 0), ("why", "another", 1), ("why", None, 1)],
)
def test_to_say_why_where_apache_kafka_is_silent_is_no_difference(theirs: Any, ours: Any, faults: int) -> None:
    step = Say({"parts": [{"error_message": theirs}]}, {"parts": [{"error_message": ours}]})
    findings, _ = compared(Fake({0: 0}), [step])
    assert len(findings.faults) == faults


def test_ids_have_the_same_numbers_again_after_one_node_made_up_more() -> None:
    theirs, ours = Met[int](), Met[int]()
    assert [theirs.number(each) for each in (50, 60, 50)] == [0, 1, 0]
    ours.number(7)
    even_out((theirs, ours))
    assert theirs.number(70) == ours.number(8) == 2
    assert (theirs.real(2, -1), ours.real(1, -1), ours.real(9, -1)) == (70, -1, -1)


@pytest.mark.parametrize(
    ("sent", "then_closed", "told"), [(b"", True, CLOSED), (b"", False, MUTE), (b"\0", False, MUTE)]
)
def test_a_node_that_does_not_answer_is_closed_or_mute(sent: bytes, then_closed: bool, told: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken: list[socket.socket] = []

        def answer() -> None:
            taken.append(listener.accept()[0])
            taken[0].recv(1)
            taken[0].sendall(sent)
            if then_closed:
                taken[0].close()

        thread = threading.Thread(target=answer)
        thread.start()
        connection = Connection(f"127.0.0.1:{listener.getsockname()[1]}", patience=10 if then_closed else 0.2)
        assert connection.ask(ApiVersionsRequest(), 0) == told
        thread.join()
        for each in taken:
            each.close()
    assert connection.ask(ApiVersionsRequest(), 0) == CLOSED, "nobody listens there any more"
