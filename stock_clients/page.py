"""The page: written from what was observed, and read back, so that a test can hold it to what is observed again."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from stock_clients.scenario import CALLS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "transactions" / "clients_after_a_timeout.md"

#: broker and transaction.version -> heading of its column
TARGETS = {
    ("fencepost", 2): "Fencepost",
    ("kafka", 2): "Apache Kafka 4.3.1",
    ("fencepost", 1): "Fencepost, transaction.version 1",
    ("kafka", 1): "Apache Kafka 4.3.1, transaction.version 1",
}
Target = tuple[str, int]
NOT_RUN = "not run"

INTRODUCTION = """\
# Clients after a time-out

What an application is told after the coordinator has timed its transaction out (KIP-588), and how it goes on. Each
producer commits a transaction, opens another, writes a record to it, and is silent until the coordinator has aborted
it. The rows are the application's next call. A send is waited for, and where it works a commit follows. At an error
the application calls abort on the same producer and begins again, twice at most; then it makes a new producer.

- **goes on**: the same producer committed the next transaction, or the next but one. Nothing was lost, nothing of the
  timed-out transaction was shown: every cell is read back with `read_committed`, records and group offsets.
- **rebuild**: only a new producer with the same transactional id could go on; then the same holds.

After that, each call that failed and what it told the application: the exception, or the code by the client's own
name. `next` and `next but one` are the transactions after the first and second abort. librdkafka adds to an error
whether it is fatal, or the transaction to be aborted.

What to do: catch the error, abort, and where the abort fails, or transaction after transaction, close the producer and
make another. Where aborts work and only the next transaction is refused, the client cannot ask for a new epoch, or does
not know that it has to.

`python -m stock_clients` writes this page from what it observes, `python -m stock_clients kafkajs` the rows of one
client; do not edit. The tests in `tests/stock_clients` hold the Fencepost columns of the Python clients to it,
`make compare` all the rest that can be run.
"""

NOTES = {
    "fencepost": "Fencepost's own client.",
    "confluent-kafka": "librdkafka. It speaks the protocol before KIP-890 everywhere. Fencepost knows it by name and "
    "answers UNKNOWN_PRODUCER_ID, after which it aborts and asks for a new epoch.",
    "aiokafka": "It asks for a producer id only when it starts, and cannot name the one that it has.",
    "kafka-python": "It speaks the protocol before KIP-890 everywhere. No error that was tried brings it on.",
    "java": "The Java client. With transaction.version 2 it speaks KIP-890, with 1 the protocol before.",
    "franz-go": "Offsets go through a `GroupTransactSession`: it commits them, or aborts by itself. Where it speaks "
    "the protocol before KIP-890, Fencepost knows it by name and answers UNKNOWN_PRODUCER_ID.",
    "kafkajs": "It asks for a producer id only when it starts, and cannot name the one that it has.",
}


@dataclass
class Section:
    """The rows of one client."""

    client: str
    version: str = ""
    #: (target, call) -> what was observed
    cells: dict[tuple[Target, str], str] = field(default_factory=dict)
    #: why cells are of an earlier run, if they are
    kept: str = ""

    def take(self, target: Target, found: dict[str, str]) -> None:
        self.cells |= {(target, call): cell for call, cell in found.items()}

    def summary(self, target: Target) -> str:
        """How many of the next calls end well on the same producer."""
        cells = [self.cells.get((target, call), NOT_RUN) for call in CALLS]
        if NOT_RUN in cells:
            return NOT_RUN
        good = [call for call, cell in zip(CALLS, cells, strict=True) if cell.startswith("goes on")]
        if len(good) in (0, len(CALLS)):
            return "goes on, always" if good else "rebuild, always"
        return f"goes on after: {', '.join(CALLS[call] for call in good)}; else rebuild"


def write(sections: list[Section]) -> str:
    heads = " | ".join(TARGETS.values())
    lines = [INTRODUCTION, "## In short", "", f"| client | {heads} |", "|---" * (len(TARGETS) + 1) + "|"]
    for section in sections:
        row = " | ".join(section.summary(target) for target in TARGETS)
        lines.append(f"| {section.client} {section.version} | {row} |")
    for section in sections:
        lines += ["", f"## {section.client} {section.version}".rstrip(), "", NOTES[section.client]]
        if section.kept:
            lines.append(f"Kept from an earlier run: {section.kept}.")
        lines += ["", f"| next call | {heads} |", "|---" * (len(TARGETS) + 1) + "|"]
        for call, title in CALLS.items():
            row = " | ".join(section.cells.get((target, call), NOT_RUN) for target in TARGETS)
            lines.append(f"| {title} | {row} |")
    return "\n".join(lines) + "\n"


def read(text: str) -> dict[str, Section]:
    """The sections of a page, by client."""
    sections: dict[str, Section] = {}
    titles = {title: call for call, title in CALLS.items()}
    for title, body in re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", text, re.MULTILINE):
        client, _, version = title.partition(" ")
        if client not in NOTES:
            continue
        kept = re.search(r"^Kept from an earlier run: (.*)\.$", body, re.MULTILINE)
        section = sections[client] = Section(client, version, kept=kept[1] if kept else "")
        for line in body.splitlines():
            first, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
            if first in titles:
                section.cells |= {(target, titles[first]): cell for target, cell in zip(TARGETS, cells, strict=True)}
    return sections


def on_page() -> dict[str, Section]:
    """What the page in the repository says."""
    return read(PAGE.read_text()) if PAGE.exists() else {}
