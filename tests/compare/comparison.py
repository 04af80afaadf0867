"""Take the same steps on both nodes, and find where they part."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field

from tests.compare.leader.nodes import Leader, Plain
from tests.compare.leader.steps import Step


@dataclass(frozen=True)
class Seen:
    """A step, what both answered, and what both then said of themselves."""

    step: Step
    answers: tuple[Plain, Plain]
    states: tuple[Plain, Plain]
    before: tuple[Seen, ...]
    level: int
    configs: tuple[tuple[str, str], ...]


Explanation = Callable[[Seen], bool]


@dataclass
class Comparison:
    """Both nodes, the listed reasons, and what was found."""

    kafka: Leader
    ours: Leader
    level: int
    explanations: Iterable[Explanation]
    steps: int = 0
    faults: list[str] = field(default_factory=list)
    explained: dict[str, int] = field(default_factory=dict)

    def run(
        self,
        name: str,
        topic: str,
        ids: list[str],
        steps: Iterator[Step],
        configs: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Go through the steps, a generator choosing each by what it has seen, until the nodes part."""
        for node in (self.kafka, self.ours):
            node.open(topic, ids, 1)
        before: list[Seen] = []
        step = next(steps, None)
        while step is not None:
            theirs, ours = step.take(self.kafka), step.take(self.ours)
            answers = theirs, _quieter(theirs, ours)
            states = _alike(self.kafka.observe(ids), configs), _alike(self.ours.observe(ids), configs)
            self.steps += 1
            seen = Seen(step, answers, states, tuple(before), self.level, configs)
            before.append(seen)
            if answers[0] != answers[1] or states[0] != states[1]:
                reason = next((explains for explains in self.explanations if explains(seen)), None)
                if reason is None:
                    self.faults.append(f"{name}, step {len(before)}: {step}\n{_differing(seen)}")
                else:
                    self.explained[reason.__name__] = self.explained.get(reason.__name__, 0) + 1
                if states[0] != states[1]:
                    return
            try:
                step = steps.send(seen) if isinstance(steps, Generator) else next(steps)
            except StopIteration:
                return


def _alike(state: Plain, configs: tuple[tuple[str, str], ...]) -> Plain:
    """A state without the sizes of batches that two libraries compressed, each in its own way."""
    if not set(configs) & {("compression_type", "lz4"), ("compression_type", "zstd")}:
        return state
    for partition in state["content"]["partitions"]:
        for batch in partition["records"] or ():
            del batch["size"]
    return state


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


def _differing(seen: Seen) -> str:
    lines = []
    for what, (theirs, ours) in (("answer", seen.answers), ("state", seen.states)):
        lines += [f"    {what}{where}: kafka {a!r}, fencepost {b!r}" for where, a, b in differences(theirs, ours)]
    return "\n".join(lines)


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
