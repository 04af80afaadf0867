"""The records that every reader of a run was shown at each offset: the same one, whole, and as it was sent.

The other checkers look at values, which say which record it is.  Here are its key, its headers and its timestamp.
"""

from __future__ import annotations

from typing import Final

from fencepost.client.records import ConsumerRecord
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.record_shapes import Shape

#: Kinds of clients whose records have the key and the headers that follow from their values -> how many records of
#: theirs may have to have room in one batch.
_TOGETHER: Final = {"producer": 1, "impatient": 1, "single": 1, "pipelined": 64, "windowed": 64, "older": 64}


class Sights:
    """The records that readers were shown, by partition and offset, and what differs between two readers."""

    def __init__(self, shape: Shape | None = None) -> None:
        """`shape`: of what is sent; None: it is not known."""
        self.changed: list[str] = []
        """What was wrong with some of them."""
        self._shape = shape
        self._seen: dict[tuple[TopicPartition, int], tuple[str, int]] = {}
        """Of each record its value, and what stands for all else that it is."""

    def note(self, record: ConsumerRecord, at: TopicPartition | None = None) -> None:
        """Note that a reader is shown this record.  `at`: its partition, where several topics had that name."""
        at = at or TopicPartition(record.topic, record.partition)
        value = (record.value or b"").decode()
        seen = value, hash((record.key, tuple(record.headers), record.timestamp))
        known = self._seen.setdefault((at, record.offset), seen)
        if known != seen:
            told = f"{value}, to somebody else as {known[0]}" if known[0] != value else f"{value}, in two ways"
            self.changed.append(f"{at.topic}-{at.partition} {record.offset} is shown as {told}")
        elif self._shape is not None and not _is_as_sent(record, value, self._shape):
            self.changed.append(f"{value} is shown with another key, or other headers, than it was sent with")


def _is_as_sent(record: ConsumerRecord, value: str, shape: Shape) -> bool:
    together = _TOGETHER.get(value.partition("-")[0])
    if together is None:
        return True
    if record.key != shape.key_of(value):
        return False
    headers = list(record.headers)
    # Nearly always as many as are sent alone.
    return headers == shape.headers_of(value) or any(
        headers == shape.headers_of(value, number) for number in range(2, together + 1)
    )
