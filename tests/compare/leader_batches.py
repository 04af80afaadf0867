"""Record batches as a client may send them, right ones and wrong ones."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c
from tests.compare.leader import NOW, Leader

from fencepost.protocol.batch import AFTER_CRC, CRC_START, HEADER_SIZE
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import encode_batch


@dataclass(frozen=True)
class Batch:
    """One record batch.  `defect` is one of DEFECTS, or empty."""

    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    count: int = 1
    size: int = 10
    compression: Compression = Compression.NONE
    key: bytes | None = b"k"
    time: int = 0
    defect: str = ""

    def encode(self, node: Leader) -> bytes:
        records = [(NOW + self.time + n, self.key, b"v" * self.size, ()) for n in range(self.count)]
        batch = encode_batch(
            records,
            compression=self.compression,
            producer_id=node.producer_id(self.producer),
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=self.transactional,
        )
        return DEFECTS[self.defect](bytearray(batch)) if self.defect else batch


def _sealed(batch: bytearray) -> bytes:
    """The batch with its size and checksum anew."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, CRC_START - 4, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def _set(position: int, form: str, value: int) -> Any:
    """A header field replaced, the checksum right."""

    def defect(batch: bytearray) -> bytes:
        struct.pack_into(form, batch, position, value)
        return _sealed(batch)

    return defect


def _raw(position: int, form: str, value: int) -> Any:
    """A header field replaced, and nothing else."""

    def defect(batch: bytearray) -> bytes:
        struct.pack_into(form, batch, position, value)
        return bytes(batch)

    return defect


def _attributes(bits: int) -> Any:
    def defect(batch: bytearray) -> bytes:
        batch[CRC_START + 1] |= bits
        return _sealed(batch)

    return defect


def _more_count(by: int, delta: int) -> Any:
    def defect(batch: bytearray) -> bytes:
        fields = list(AFTER_CRC.unpack_from(batch, CRC_START))
        fields[1] += delta
        fields[7] += by
        AFTER_CRC.pack_into(batch, CRC_START, *fields)
        return _sealed(batch)

    return defect


#: name -> what becomes of a good batch
DEFECTS: dict[str, Any] = {
    "crc": _raw(CRC_START - 4, ">I", 1),
    "count + 1": _more_count(1, 0),
    "count - 1": _more_count(-1, 0),
    "last offset + 1": _more_count(0, 1),
    "count and last offset + 1": _more_count(1, 1),
    "count and last offset - 1": _more_count(-1, -1),
    "count 0": _set(57, ">i", 0),
    "count -1": _set(57, ">i", -1),
    "last offset -1": _set(23, ">i", -1),
    "no records": lambda batch: _sealed(_emptied(batch)),
    "control": _attributes(0x20),
    "control and transactional": _attributes(0x30),
    "log append time": _attributes(0x08),
    "delete horizon": _attributes(0x40),
    "codec 5": _attributes(5),
    "codec 7": _attributes(7),
    "gzip, but plain": _attributes(1),
    "unknown attribute": _attributes(0x80),
    "magic 0": _raw(16, ">b", 0),
    "magic 1": _raw(16, ">b", 1),
    "magic 3": _raw(16, ">b", 3),
    "magic -1": _raw(16, ">b", -1),
    "cut": lambda batch: bytes(batch[:-3]),
    "cut in the header": lambda batch: bytes(batch[:30]),
    "cut in the first 17 bytes": lambda batch: bytes(batch[:14]),
    "shorter than its header": _raw(8, ">i", 20),
    "ends in the producer id": lambda batch: _ending(batch, 46),
    "ends in the epoch": lambda batch: _ending(batch, 52),
    "ends in the count": lambda batch: _ending(batch, 58),
    "size 14": _raw(8, ">i", 14),
    "size 2147483640": _raw(8, ">i", 2147483640),
    "size 0": _raw(8, ">i", 0),
    "size -1": _raw(8, ">i", -1),
    "empty": lambda batch: bytes(batch[:0]),
    "two": lambda batch: bytes(batch) + bytes(batch),
    "one and a half": lambda batch: bytes(batch) + bytes(batch)[:-5],
    "bytes behind": lambda batch: bytes(batch) + b"\0\0\0",
    "base offset 7": _raw(0, ">q", 7),
    "base offset -1": _raw(0, ">q", -1),
    "leader epoch 5": _raw(12, ">i", 5),
    "max timestamp later": _set(35, ">q", NOW + 777),
    "max timestamp -1": _set(35, ">q", -1),
    "base timestamp -1": _set(27, ">q", -1),
    "record broken": lambda batch: _sealed(batch[:HEADER_SIZE] + b"\x7f" + batch[HEADER_SIZE + 1 :]),
    "record cut": lambda batch: _sealed(batch[:-1]),
    "record behind": lambda batch: _sealed(batch + b"\0\0"),
    "epoch -1": _set(51, ">h", -1),
    "epoch -2": _set(51, ">h", -2),
    "sequence -1": _set(53, ">i", -1),
    "sequence -2": _set(53, ">i", -2),
    "producer id -1": _set(43, ">q", -1),
    "producer id -2": _set(43, ">q", -2),
}


def _ending(batch: bytearray, end: int) -> bytes:
    """A batch that ends there, says so, and is all there is."""
    struct.pack_into(">i", batch, 8, end - 12)
    return bytes(batch[:end])


def _emptied(batch: bytearray) -> bytearray:
    emptied = batch[:HEADER_SIZE]
    struct.pack_into(">i", emptied, 57, 0)
    return emptied
