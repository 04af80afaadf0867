"""Scenarios about single batches: unreadable ones, those of no epoch, and those that are compressed anew."""

from __future__ import annotations

from collections.abc import Iterator

from tests.compare.leader.batches import INSIDE, PACKED, Batch
from tests.compare.leader.scenario import ID, Scenario, before_writing
from tests.compare.leader.steps import HERE, End, Produce, Register, Step, write

from fencepost.protocol.compression import Compression


def unreadable(level: int) -> Iterator[Scenario]:
    """Batches that fail more than their own partition, beside good ones."""
    newest = 13 if level == 2 else 11
    good, tx = Batch(count=2), Batch(0, 0, 0, True)
    for defect in ("codec 5", "magic 1", "magic 3", "size 14", "size 0", "size 2147483640", "ends in the producer id"):
        for version in (3, 7, newest):
            bad = Batch(defect=defect)
            yield Scenario(
                f"{defect} beside others v{version}",
                [
                    *before_writing(level, version),
                    Produce(version, ((0, good, HERE), (1, bad, HERE))),
                    Produce(version, ((0, bad, "unknown-topic-x"), (1, good, HERE))),
                    Produce(version, ((0, bad, HERE), (1, tx, HERE)), ID),
                    Produce(version, ((0, tx, HERE), (1, bad, HERE))),
                    Produce(version, ((0, tx, HERE), (1, bad, HERE)), ID),
                    Produce(version, ((0, good, HERE), (1, bad, HERE)), acks=0),
                    Produce(version, ((0, good, HERE), (1, bad, HERE)), acks=5),
                ],
            )
    for defect in ("ends in the epoch", "ends in the count"):
        for bad in (Batch(1, 0, 0, defect=defect), Batch(0, 0, 0, True, defect=defect)):
            steps = [*before_writing(level, newest), Produce(newest, ((0, good, HERE), (1, bad, HERE)), ID)]
            yield Scenario(f"{defect} of {bad.producer}", steps)


def epochless(level: int) -> Iterator[Scenario]:
    """Producer ids with an epoch below 0: it is that of a producer that nobody knows."""
    for first in (-1, -2):
        for known in ([], [write(9, Batch(1, 0, 0))]):
            then = [(first, 0), (first, 0), (first, 5), (0, 7), (first, 8), (0, 8), (1, 0)]
            steps: list[Step] = [*known, *(write(9, Batch(1, epoch, sequence)) for epoch, sequence in then)]
            yield Scenario(f"epoch {first} after {len(known)}", steps)
    for version in (8, 11, 13) if level == 2 else (8, 11):
        for epoch in (-1, -2):
            for opened in ([], [write(version, Batch(0, 0, 0, True), of=ID)], [write(9, Batch(0, -1, 3))]):
                began: list[Step] = [*before_writing(level, version), *opened]
                rest = [
                    write(version, Batch(0, e, s, True), of=ID) for e, s in ((epoch, 0), (epoch, 1), (0, 1), (0, 0))
                ]
                yield Scenario(f"transactional epoch {epoch} v{version} after {opened}", [*began, *rest])


#: Of these Apache Kafka appends some, as they are or put right.
_APART = (
    "first number 1",
    "first number -1",
    "size too large",
    "size too small",
    "size 0",
    "size -1",
    "key of length -2",
    "a header that is not UTF-8",
    "a byte behind",
    "twice",
)


def disagreeing() -> Iterator[Scenario]:
    """Batches whose records are not what their header says, in every codec, between good ones."""
    defects = ("count and last offset + 1", "count and last offset - 1", "max timestamp later", "max timestamp -1")
    for codec in Compression:
        wrong = [
            *(Batch(compression=codec, inside=inside) for inside in INSIDE),
            *(Batch(compression=codec, packed=packed) for packed in PACKED),
            *(Batch(count=n, compression=codec, defect=defect) for defect in defects for n in (2, 5)),
        ]
        together = [batch for batch in wrong if not {batch.inside, batch.packed} & set(_APART)]
        for settings in ((), (("cleanup_policy", "compact"),), (("message_timestamp_type", "LogAppendTime"),)):
            steps = [write(8, batch) for batch in together]
            yield Scenario(f"disagreeing in {codec.name}", steps, settings)
        for batch in wrong:
            if batch not in together:
                yield Scenario(f"{batch.inside or batch.packed} in {codec.name}", [write(8, batch)])


def converted() -> Iterator[Scenario]:
    """Topics with a codec of their own."""
    for wanted in ("gzip", "snappy", "lz4", "zstd", "uncompressed"):
        settings = (("compression_type", wanted),)
        for codec in Compression:
            steps = [write(v, Batch(count=2, compression=codec)) for v in (8, 13)]
            yield Scenario(f"codec {codec.name} to {wanted}", steps, settings)
            yield Scenario(
                f"stamped {codec.name} to {wanted}", steps, (*settings, ("message_timestamp_type", "LogAppendTime"))
            )
            large = [write(9, Batch(size=size, compression=codec)) for size in (100, 350, 2000)]
            yield Scenario(f"large {codec.name} to {wanted}", large, (*settings, ("max_message_bytes", "300")))
    for wanted in ("gzip", "uncompressed"):
        settings = (("compression_type", wanted),)
        for codec in (Compression.NONE, Compression.LZ4):
            odd = [
                Batch(producer, epoch, sequence, compression=codec)
                for producer in (1, -1, -2)
                for epoch in (0, -1, -2)
                for sequence in (0, -1)
            ]
            yield Scenario(f"producers, {codec.name} to {wanted}", [write(9, batch) for batch in odd], settings)
            for defect in (
                "count + 1",
                "crc",
                "control",
                "codec 5",
                "unknown attribute",
                "delete horizon",
                "base offset 7",
            ):
                steps = [write(9, Batch(1, 0, n, count=1, compression=codec, defect=defect)) for n in (0, 1)]
                yield Scenario(f"{defect}, {codec.name} to {wanted}", steps, settings)
            steps = [
                write(9, Batch(1, e, s, compression=codec)) for e, s in ((1, 0), (1, 0), (1, 1), (0, 0), (1, 0), (1, 3))
            ]
            yield Scenario(f"repeats, {codec.name} to {wanted}", steps, settings)
            aborted = [
                Register(3, ID, 0, 0),
                write(9, Batch(0, 0, 0, True, compression=codec), of=ID),
                End(3, ID, 0, 0, False),
            ]
            yield Scenario(f"transaction, {codec.name} to {wanted}", aborted, settings)
    garbled = [write(9, Batch(1, e, 0, defect="gzip, but plain")) for e in (0, 1)]
    yield Scenario("garbled to snappy", [write(9, Batch(1, 1, 0)), *garbled], (("compression_type", "snappy"),))
    stamped = [write(9, Batch(count=2, compression=codec, defect="log append time")) for codec in Compression]
    yield Scenario("stamped by the producer", stamped, (("message_timestamp_type", "LogAppendTime"),))
