"""The types of the protocol: what a number means (`Offset`, `Epoch`), and how it is laid out on the wire (`int32`)."""

from __future__ import annotations

import uuid as _uuid
from enum import IntEnum
from typing import Annotated, Final, NamedTuple, NewType, TypeAlias

Milliseconds = NewType("Milliseconds", int)
"""A point in time (since the Unix epoch) or a duration, by context."""
Offset = NewType("Offset", int)
"""The place of a record in its partition, from 0 on."""
Epoch = NewType("Epoch", int)
"""The epoch of a producer, 0 to `MAX_PRODUCER_EPOCH`, or the generation of a group; -1: none."""
LeaderEpoch = NewType("LeaderEpoch", int)
"""The epoch of a partition's leader, from 0 on; -1: none.  A coordinator's is that of its journal partition."""
Lsn = NewType("Lsn", int)
"""How much of a node's commit log there is up to a write: the write is durable when that much of the log is."""
ProducerId = NewType("ProducerId", int)
"""The id of a producer, from 0 on; -1: none."""

NO_EPOCH: Final = Epoch(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
FIRST_LEADER_EPOCH: Final = LeaderEpoch(0)
FIRST_OFFSET: Final = Offset(0)
NO_OFFSET: Final = Offset(-1)
NO_LSN: Final = Lsn(0)
"""The lsn of what depends on no write."""
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_TIMESTAMP: Final = Milliseconds(-1)

TRANSACTION_STATE: Final = "__transaction_state"
"""The topic that is the journal of transaction coordinators."""
CONSUMER_OFFSETS: Final = "__consumer_offsets"
"""The topic that is the journal of group coordinators."""

Buffer: TypeAlias = bytes | bytearray | memoryview

# How a field is laid out.  To the type checker they are the plain Python type.
int8: TypeAlias = Annotated[int, "int8"]
int16: TypeAlias = Annotated[int, "int16"]
uint16: TypeAlias = Annotated[int, "uint16"]
int32: TypeAlias = Annotated[int, "int32"]
uint32: TypeAlias = Annotated[int, "uint32"]
int64: TypeAlias = Annotated[int, "int64"]
float64: TypeAlias = Annotated[float, "float64"]
boolean: TypeAlias = Annotated[bool, "boolean"]
string: TypeAlias = Annotated[str, "string"]
error_text: TypeAlias = Annotated[str, "string", "shortened"]
"""A string that says what is wrong.  It may name what was asked for, which may be as long as any string: it is encoded
as `protocol.errors.told` has it.
"""
uuid: TypeAlias = Annotated[_uuid.UUID, "uuid"]
binary: TypeAlias = Annotated[bytes, "binary"]
batches: TypeAlias = Annotated[bytes | bytearray | memoryview, "batches"]
"""Record batches.  Decoding gives a slice of the message's own buffer, not a copy."""

ZERO_UUID = _uuid.UUID(int=0)


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Isolation(IntEnum):
    """The isolation level of a reader: up to the high watermark, or to the last stable offset (facts §8.1)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ProducerIdAndEpoch(NamedTuple):
    """A producer id, with the epoch that tells its holder from those before (KIP-98)."""

    producer_id: ProducerId
    producer_epoch: Epoch

    @classmethod
    def of(cls, producer_id: int, producer_epoch: int) -> ProducerIdAndEpoch:
        """The pair of two numbers as they came off the wire."""
        return cls(ProducerId(producer_id), Epoch(producer_epoch))


#: Nobody: what is on the wire where there is no producer id.
NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_EPOCH)

#: Largest producer epoch there is (int16).  Only the coordinator and markers ever carry it.
MAX_PRODUCER_EPOCH: Final = Epoch(32767)
#: Largest producer epoch that a coordinator gives to a client.  The next bump takes a new producer id.
LAST_CLIENT_EPOCH: Final = Epoch(32766)
