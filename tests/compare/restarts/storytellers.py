"""Play the stories of `stories` on both nodes, with a restart in the middle."""

from __future__ import annotations

from collections.abc import Sequence

from tests.compare.leader.batches import Batch
from tests.compare.leader.explanations import EXPLANATIONS as OF_LEADERS
from tests.compare.leader.steps import Delete, Produce, Step
from tests.compare.nodes.comparison import LEVELS, Comparison, Explanation, Findings, Plain, Seen, differences
from tests.compare.nodes.leader import Leader
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


EXPLANATIONS: dict[Explanation, tuple[int, ...]] = {
    **OF_LEADERS,
    remembers_five_batches: LEVELS,
    remembers_producers_of_deleted_records: LEVELS,
}


class Told:
    """One story: a connection to each node, and what was seen so far."""

    def __init__(self, story: Story, topic: str, nodes: tuple[Leader, Leader], findings: Findings) -> None:
        self.story, self.topic = story, topic
        self.ids = [f"{topic}-{ID}"]
        self._both = Comparison(story.name, nodes, findings, lambda node: node.observe(self.ids), _without_epochs)

    def begin(self) -> None:
        for node in self._both.nodes:
            node.open(self.topic, self.ids, 1)
        self._go(self.story.before)

    def go_on(self) -> None:
        """After the restart; first of all nothing may have changed."""
        if not self._both.have_parted and self._both.seen:
            last = self._both.seen[-1]
            self._both.judge(last.step, last.answers)
        self._go(self.story.after)

    def _go(self, steps: Sequence[Step]) -> None:
        self._both.go(steps)
        for node in self._both.nodes:
            node.hang_up()


def _without_epochs(value: Plain) -> Plain:
    if isinstance(value, ControlRecord):
        return value.type
    if isinstance(value, dict):
        return {name: _without_epochs(one) for name, one in value.items() if name not in _IGNORED}
    return [_without_epochs(one) for one in value] if isinstance(value, list) else value
