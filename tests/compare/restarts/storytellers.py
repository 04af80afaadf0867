"""Play the stories of `stories` on both nodes, with a restart in the middle."""

from __future__ import annotations

from collections.abc import Sequence

from tests.compare.leader.batches import Batch
from tests.compare.leader.comparison import Explanation, Seen, differences
from tests.compare.leader.explanations import EXPLANATIONS
from tests.compare.leader.nodes import Leader, Plain
from tests.compare.leader.steps import Delete, Produce, Step
from tests.compare.restarts.stories import ID, Story

from fencepost.protocol.control import ControlRecord

_IGNORED = ("leader", "leader_epoch", "coordinator_epoch", "error_message", "log_append_time_ms")
"""Apache Kafka elects itself anew at each start; it tells the time of a repeated batch by what came behind it."""


def remembers_five_batches(seen: Seen) -> bool:
    """A repeated batch: Apache Kafka's snapshots keep the last one of a producer, ours five, as in memory."""
    repeated = isinstance(seen.step, Produce) and any(_repeats(seen, part[1]) for part in seen.step.parts)
    theirs, ours = (str(answer) for answer in seen.answers)
    return repeated and "OUT_OF_ORDER_SEQUENCE_NUMBER" in theirs and "OUT_OF_ORDER" not in ours


def _repeats(seen: Seen, batch: Batch | None) -> bool:
    return any(isinstance(past.step, Produce) and past.step.parts[0][1] == batch for past in seen.before)


def remembers_producers_of_deleted_records(seen: Seen) -> bool:
    """Where all records were deleted: Apache Kafka forgets who wrote them, and would take them once more."""
    deleted = any(isinstance(past.step, Delete) for past in seen.before)
    found = differences(*seen.states)
    return deleted and bool(found) and all(at.endswith(".active_producers") and not theirs for at, theirs, _ in found)


_EXPLANATIONS: tuple[Explanation, ...] = (
    *EXPLANATIONS,
    remembers_five_batches,
    remembers_producers_of_deleted_records,
)


class Told:
    """One story: a connection to each node, and what was seen so far."""

    def __init__(self, story: Story, topic: str, nodes: tuple[Leader, Leader], level: int) -> None:
        self.story, self.topic, self.nodes, self.level = story, topic, nodes, level
        self.ids = [f"{topic}-{ID}"]
        self.seen: list[Seen] = []
        self.parted = False
        self.fault = ""
        self.explained: list[str] = []

    def begin(self) -> None:
        for node in self.nodes:
            node.open(self.topic, self.ids, 1)
        self._go(self.story.before)

    def go_on(self) -> None:
        """After the restart; first of all nothing may have changed."""
        if not self.parted and self.seen:
            self._look(self.seen[-1].step, self.seen[-1].answers)
        self._go(self.story.after)

    def _go(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if self.parted:
                break
            theirs, ours = (_without_epochs(step.take(node)) for node in self.nodes)
            self._look(step, (theirs, ours))
        for node in self.nodes:
            node.close()

    def _look(self, step: Step, answers: tuple[Plain, Plain]) -> None:
        theirs, ours = (_without_epochs(node.observe(self.ids)) for node in self.nodes)
        now = Seen(step, answers, (theirs, ours), tuple(self.seen), self.level, ())
        self.seen.append(now)
        if answers[0] == answers[1] and theirs == ours:
            return
        reason = next((explains for explains in _EXPLANATIONS if explains(now)), None)
        self.parted = theirs != ours or reason is None
        if reason is not None:
            self.explained.append(reason.__name__)
            return
        found = [
            (f"{what}{at}", *pair)
            for what, two in (("answer", answers), ("state", now.states))
            for at, *pair in differences(*two)
        ]
        lines = [f"    {at}: kafka {a!r}, fencepost {b!r}" for at, a, b in found]
        told = "\n".join([*(f"    {past.step}" for past in self.seen), *lines])
        self.fault = f"== {self.story.name}, transaction.version {self.level}\n{told}"


def _without_epochs(value: Plain) -> Plain:
    if isinstance(value, ControlRecord):
        return value.type
    if isinstance(value, dict):
        return {name: _without_epochs(one) for name, one in value.items() if name not in _IGNORED}
    return [_without_epochs(one) for one in value] if isinstance(value, list) else value
