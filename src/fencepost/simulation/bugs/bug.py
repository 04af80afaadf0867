"""A bug on purpose, and the format in which it is written down.

A bug stands in a file of its room, as the lines that it takes out (-), puts in (+), or only finds its place by ( ):

    @ name
    @ what goes wrong, in a sentence
    @ module like KAFKA-1234
    -the right line
    +the wrong line

Where something else in the code makes up for it a fourth line says so: `@ masked: by what`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_MASKED: Final = "@ masked: "


class BugUnusable(Exception):
    """There is no such bug, or it cannot be put in; the message says why."""


class Bug(NamedTuple):
    """A small change to a module that makes it wrong."""

    name: str
    what: str
    """What goes wrong."""
    module: str
    changes: Sequence[str]
    """Lines of the module, each behind -, + or a space."""
    upstream: str = ""
    """The number of the bug that was like it, in Apache Kafka or another broker (facts §13)."""
    masked: str = ""
    """What makes up for it, so that no test can find it; empty if it does harm."""

    @property
    def room(self) -> str:
        """The part of the code that the bug is in: log, coordinator, broker, client, ..."""
        return self.module.split(".")[1]

    def put_into(self, source: str) -> str:
        """The source with the bug.  Raises BugUnusable if the lines that it changes do not stand there once."""
        right = re.compile("^" + re.escape(self._lines(" -")), re.MULTILINE)
        count = len(right.findall(source))
        if count != 1:
            raise BugUnusable(f"the bug {self.name} changes lines that stand in {self.module} {count} times, not once")
        wrong = self._lines(" +")
        return right.sub(lambda _: wrong, source)

    def _lines(self, kinds: str) -> str:
        return "".join(line[1:] + "\n" for line in self.changes if line[0] in kinds)


def read(text: str) -> Iterator[Bug]:
    """The bugs of a file, in its order."""
    for part in text.split("\n\n"):
        lines = [line for line in part.split("\n") if line]
        if lines:
            name, what, place = (line.removeprefix("@ ") for line in lines[:3])
            module, _, upstream = place.partition(" like ")
            behind = 4 if lines[3].startswith(_MASKED) else 3
            masked = lines[3].removeprefix(_MASKED) if behind == 4 else ""
            yield Bug(name, what, module, lines[behind:], upstream, masked)
