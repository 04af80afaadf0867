"""Take the same steps on both nodes, and find where they part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

Plain = Any
"""Dictionaries, lists, tuples, texts and numbers, in terms that both nodes share."""
LEVELS = (0, 1, 2)
"""Of transaction.version."""

NodeType = TypeVar("NodeType")
Of = TypeVar("Of", contravariant=True)


class Step(Protocol[Of]):
    """Something that a node is asked to do."""

    def take(self, node: Of, /) -> Plain:
        """Its answer."""


@dataclass(frozen=True)
class Seen:
    """A step, what both answered, and what both then said of themselves; `before`: the steps that led there."""

    step: Any
    answers: tuple[Plain, Plain]
    states: tuple[Plain, Plain]
    before: tuple[Seen, ...] = ()
    level: int = 2
    configs: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        lines = []
        for what, (theirs, ours) in (("answer", self.answers), ("state", self.states)):
            lines += [f"    {what}{where}: kafka {a!r}, fencepost {b!r}" for where, a, b in differences(theirs, ours)]
        return "\n".join([str(self.step), *lines])


Explanation = Callable[[Seen], bool]


class Findings:
    """What was compared so far, why it differed where that is explained, and where it differed otherwise.

    `explanations`: a reason why what was seen may differ -> the levels of transaction.version at which it counts.
    """

    def __init__(self, explanations: Mapping[Callable[..., bool], Collection[int]], level: int = 2) -> None:
        self.level = level
        self.compared = 0
        self.explained: Counter[str] = Counter()
        self.faults: list[str] = []
        self._explanations = explanations

    def explains(self, *seen: Any) -> bool:
        """Whether a listed reason explains a difference; it is given what was seen."""
        for reason, levels in self._explanations.items():
            if self.level in levels and reason(*seen):
                self.explained[reason.__name__] += 1
                return True
        return False

    def check(self) -> None:
        """Raises AssertionError with the first faults, if there are any."""
        print(f"{self.compared} compared; explained: {dict(self.explained)}")
        assert not self.faults, f"{len(self.faults)} differ; the first ones:\n" + "\n\n".join(self.faults[:5])


@dataclass
class Comparison(Generic[NodeType]):
    """Steps of one walk or scenario on both nodes, until these part.

    `look` is what a node says of itself after a step; `shared` takes from an answer or a state what may differ.  The
    nodes have parted when their states differ (an answer alone, when it is not explained, is a fault and no end), with
    `at_answers` when their answers do.
    """

    title: str
    nodes: tuple[NodeType, NodeType]
    findings: Findings
    look: Callable[[NodeType], Plain] | None = None
    shared: Callable[[Plain], Plain] | None = None
    configs: tuple[tuple[str, str], ...] = ()
    at_answers: bool = False
    have_parted: bool = False
    seen: list[Seen] = field(default_factory=list)

    def go(self, steps: Iterator[Step[NodeType]] | Sequence[Step[NodeType]]) -> None:
        """Take the steps; a generator is sent what was seen of the one before, and may choose by that."""
        steps = iter(steps)
        step = next(steps, None)
        while step is not None and not self.have_parted:
            self.take(step)
            try:
                step = steps.send(self.seen[-1]) if hasattr(steps, "send") else next(steps)
            except StopIteration:
                return

    def take(self, step: Step[NodeType]) -> None:
        theirs, ours = (self._shared(step.take(node)) for node in self.nodes)
        self.judge(step, (theirs, _quieter(theirs, ours)))

    def judge(self, step: Step[NodeType], answers: tuple[Plain, Plain]) -> None:
        """Compare what both answered and what they now say of themselves."""
        theirs, ours = (None if self.look is None else self._shared(self.look(node)) for node in self.nodes)
        now = Seen(step, answers, (theirs, ours), tuple(self.seen), self.findings.level, self.configs)
        self.seen.append(now)
        self.findings.compared += 1
        if answers[0] == answers[1] and theirs == ours:
            return
        if not self.findings.explains(now):
            told = "\n".join([*(f"    {past.step}" for past in self.seen[:-1]), str(now)])
            self.findings.faults.append(f"== {self.title}, transaction.version {self.findings.level}\n{told}")
        self.have_parted = self.at_answers or theirs != ours

    def _shared(self, value: Plain) -> Plain:
        return value if self.shared is None else self.shared(value)


def _quieter(theirs: Plain, ours: Plain) -> Plain:
    """Our answer without the texts that Apache Kafka leaves out: to say more than it is no difference."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return {
            name: theirs.get(name, value)
            if name == "error_message" and not theirs.get(name)
            else _quieter(theirs.get(name), value)
            for name, value in ours.items()
        }
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [_quieter(a, b) for a, b in zip(theirs, ours, strict=True)]
    return ours


def differences(theirs: Plain, ours: Plain, where: str = "") -> list[tuple[str, Plain, Plain]]:
    """Where two plain values differ, as deep as they have the same form."""
    if theirs == ours:
        return []
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
        return [found for key in theirs for found in differences(theirs[key], ours[key], f"{where}.{key}")]
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        pairs = enumerate(zip(theirs, ours, strict=True))
        return [found for n, (a, b) in pairs for found in differences(a, b, f"{where}[{n}]")]
    return [(where, theirs, ours)]
