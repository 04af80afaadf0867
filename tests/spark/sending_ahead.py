"""Tasks that die after they have sent some of their batches, before the rest of their rows is there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fencepost.protocol.records import BatchBuilder
from fencepost.spark.ahead import SendingAhead, TaskAhead
from fencepost.spark.attempt import Receipt

#: Batches that are acknowledged before, and that a task must have to die.
SOME = 3


@dataclass(frozen=True)
class DyingOnce(SendingAhead):
    """The first task that has sent some dies, and no other one.  What tasks do is told by files in `folder`."""

    folder: str = ""

    def __call__(self) -> TaskAhead:
        return _Dying(self, Path(self.folder))


class _Dying(TaskAhead):
    def __init__(self, given: SendingAhead, folder: Path) -> None:
        super().__init__(given)
        self._folder = folder
        self._given_to = 0

    def put(self, target: int, batch: BatchBuilder) -> None:
        super().put(target, batch)
        self._given_to += 1
        if self._given_to == SOME:
            super().finish()
            try:
                (self._folder / "died").touch(exist_ok=False)
            except FileExistsError:
                return
            os._exit(1)

    def finish(self) -> list[tuple[int, Receipt]]:
        found = super().finish()
        if found:
            (self._folder / f"sent-{os.getpid()}").touch()
        return found
