"""Drawn logs of one partition, and what a reader in commit order is to be given of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import strategies as st

from fencepost.protocol.batch import stamp
from fencepost.protocol.compression import Compression
from fencepost.protocol.control import control_batch
from fencepost.protocol.records import encode_record, seal
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId

Step = tuple[str, int, int]
_PRODUCERS = st.integers(0, 3)
_DATA = st.tuples(
    st.sampled_from(["data", "data", "data", "bumped", "zipped", "thinned"]), _PRODUCERS, st.integers(1, 4)
)
_END = st.tuples(st.sampled_from(["commit", "commit", "abort"]), _PRODUCERS, st.just(0))
_PLAIN = st.tuples(st.sampled_from(["plain", "plain of a transactional producer"]), _PRODUCERS, st.integers(1, 3))
_ODD = st.tuples(st.sampled_from(["gap", "emptied", "emptied marker", "leader change"]), _PRODUCERS, st.integers(1, 3))
_STEP = st.one_of(_DATA, _DATA, _END, _END, _PLAIN, _ODD)
#: (what is written, by which producer, how many records or offsets); short ones to be read, long ones to be thorough
STEPS: st.SearchStrategy[list[Step]] = st.lists(_STEP, max_size=6) | st.lists(_STEP, min_size=20, max_size=60)


class Log(NamedTuple):
    """Batches as they stand in a partition, and the offsets of records in the order of their commits."""

    batches: list[tuple[int, int, bytes]]
    """First offset, last offset, bytes."""
    delivered: list[int]
    pieces: list[list[int]]
    """The same, by transaction, and by batch of records outside transactions."""
    end: int
    open_since: dict[int, int]
    """Producer id -> the first offset of its transaction that has not ended."""

    def fetch(self, offset: int, most: int) -> bytes:
        """As a leader answers: whole batches, the first one however large it is."""
        found = b""
        for _, last, batch in self.batches:
            if last >= offset and (not found or len(found) + len(batch) <= most):
                found += batch
            elif found:
                break
        return found


def value(offset: int) -> bytes:
    """What a record at this offset has in it; sizes differ."""
    return b"%d " % offset + b"." * (offset * 7919 % 300)


def build(steps: Iterable[Step]) -> Log:
    """The log that comes of these steps."""
    batches: list[tuple[int, int, bytes]] = []
    pieces: list[list[int]] = []
    pending: dict[int, list[int]] = {}
    since: dict[int, int] = {}
    offset = 0
    for kind, producer, count in steps:
        if kind == "gap":
            offset += count
            continue
        offsets = [offset + n for n in range(count)]
        size = count
        match kind:
            case "commit" | "abort":
                batch, size = (
                    control_batch(ProducerId(producer), Epoch(1), LeaderEpoch(0), kind == "commit", Milliseconds(0)),
                    1,
                )
                ended = pending.pop(producer, [])
                since.pop(producer, None)
                if kind == "commit" and ended:
                    pieces.append(ended)
            case "emptied":
                batch = _batch([], offset, producer, span=count, transactional=True)
            case "emptied marker":
                batch, size = _batch([], offset, producer, span=1, transactional=True, control=True), 1
            case "leader change":
                body = encode_record(0, 0, b"\x00\x00\x00\x02", b"\x00\x00", ())
                batch, size = seal(body, 1, 0, 0, control=True), 1
            case "plain" | "plain of a transactional producer":
                batch = _batch(offsets, offset, producer if "of" in kind else -1)
                pieces.append(offsets)
            case _:
                kept = offsets[1 : max(2, count - 1)] if kind == "thinned" and count > 1 else offsets
                codec = Compression.GZIP if kind == "zipped" else Compression.NONE
                batch = _batch(
                    kept, offset, producer, span=count, transactional=True, codec=codec, epoch=kind == "bumped"
                )
                pending.setdefault(producer, []).extend(kept)
                since.setdefault(producer, offset)
        whole = bytearray(batch)
        stamp(whole, 0, Offset(offset), LeaderEpoch(0))
        batches.append((offset, offset + size - 1, bytes(whole)))
        offset += size
    end = batches[-1][1] + 1 if batches else 0
    return Log(batches, [each for piece in pieces for each in piece], pieces, end, since)


def _batch(
    offsets: list[int],
    base: int,
    producer: int,
    *,
    span: int | None = None,
    transactional: bool = False,
    control: bool = False,
    codec: Compression = Compression.NONE,
    epoch: int = 0,
) -> bytes:
    body = b"".join(encode_record(offset - base, 0, None, value(offset), ()) for offset in offsets)
    return seal(
        body,
        len(offsets),
        0,
        0,
        last_offset_delta=(len(offsets) if span is None else span) - 1,
        compression=codec,
        producer_id=ProducerId(producer),
        producer_epoch=Epoch(epoch),
        base_sequence=0,
        transactional=transactional,
        control=control,
    )
