"""Record batches as a client may send them, right ones and wrong ones."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c
from tests.compare.nodes.leader import Leader
from tests.compare.nodes.plain import NOW

from fencepost.protocol.batch import AFTER_CRC, CRC_START, HEADER_SIZE, read_header
from fencepost.protocol.compression import Compression, decompress
from fencepost.protocol.records import encode_batch, seal
from fencepost.protocol.types import Epoch, ProducerId


@dataclass(frozen=True)
class Batch:
    """One record batch.  `defect` is one of DEFECTS, `inside` one of INSIDE, `packed` one of PACKED, or empty."""

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
    inside: str = ""
    packed: str = ""

    def encode(self, node: Leader) -> bytes:
        records = [(NOW + self.time + n, self.key, b"v" * self.size, ()) for n in range(self.count)]
        batch = encode_batch(
            records,
            compression=self.compression,
            producer_id=ProducerId(node.producer_id(self.producer)),
            producer_epoch=Epoch(self.epoch),
            base_sequence=self.sequence,
            transactional=self.transactional,
        )
        if self.inside or self.packed:
            batch = self._anew(batch)
        return DEFECTS[self.defect](bytearray(batch)) if self.defect else batch

    def _anew(self, batch: bytes) -> bytes:
        header, body = read_header(batch), decompress(self.compression, batch[HEADER_SIZE:])
        if self.inside:
            body = INSIDE[self.inside](body)
        anew = bytearray(
            seal(
                body,
                header.record_count,
                header.base_timestamp,
                header.max_timestamp,
                compression=self.compression,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                transactional=header.is_transactional,
            )
        )
        if self.packed:
            anew[HEADER_SIZE:] = PACKED[self.packed](bytes(anew[HEADER_SIZE:]))
        return _sealed(anew)


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


#: name -> what becomes of the records of a batch before they are compressed; each of them has a key of one byte
INSIDE: dict[str, Callable[[bytes], bytes]] = {
    "first number 1": lambda body: body[:3] + b"\x02" + body[4:],
    "first number -1": lambda body: body[:3] + b"\x01" + body[4:],
    "cut": lambda body: body[:-1],
    "bytes behind": lambda body: body + b"\0\0",
    "size too large": lambda body: b"\x7e" + body[1:],
    "size too small": lambda body: bytes([body[0] - 2]) + body[1:],
    "size 0": lambda body: b"\0" + body[1:],
    "size -1": lambda body: b"\x01" + body[1:],
    "key of length -2": lambda body: body[:4] + b"\x03" + body[5:],
    "key too long": lambda body: body[:4] + b"\x7e" + body[5:],
    "no key": lambda body: body[:4] + b"\x01" + body[5:],
    "attributes": lambda body: body[:1] + b"\xff" + body[2:],
    "earlier": lambda body: body[:2] + b"\x01" + body[3:],
    "later": lambda body: body[:2] + b"\x7e" + body[3:],
    "-1 headers": lambda body: body[:-1] + b"\x01",
    "a header": lambda body: body[:-1] + b"\x02",
    "a header that is not UTF-8": lambda body: bytes([body[0] + 6]) + body[1 : body[0] // 2] + b"\x02\x02\xff\x01",
    "a header without a key": lambda body: bytes([body[0] + 4]) + body[1 : body[0] // 2] + b"\x02\x01\x01",
    "empty": lambda body: body[:0],
    "zeros": lambda body: bytes(len(body)),
}

#: name -> what becomes of the records of a batch when they are compressed
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda body: body[: len(body) // 2],
    "all but a byte": lambda body: body[:-1],
    "a byte behind": lambda body: body + b"\0",
    "twice": lambda body: body + body,
    "garbage": lambda body: b"garbage" * len(body),
    "empty": lambda body: body[:0],
}

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
