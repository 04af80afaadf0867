"""The events that a history has.  Pure data: numbers, names and tuples of them.

Times are microseconds of virtual time since the beginning of the run.  A partition is written as `topic-index`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from fencepost.protocol.types import Epoch, Lsn, ProducerId


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch, on its way to a partition or in it."""

    partition: str
    producer_id: ProducerId
    producer_epoch: Epoch
    base_sequence: int
    records: int
    is_transactional: bool
    values: tuple[str, ...]
    """The first few records, of each the first few characters."""


@dataclass(frozen=True, slots=True)
class Run:
    """The run: what it is made from and what repeats it."""

    seed: int
    duration: int
    """Microseconds for which the clients work."""
    command: str
    """The command that repeats it."""
    circumstances: tuple[str, ...]
    """The settings of the run, each as `name=value`."""


@dataclass(frozen=True, slots=True)
class Request:
    """A client writes a request."""

    time: int
    exchange: int
    """Its number, by which everything that becomes of it is known."""
    client: str
    connection: int
    api: str
    version: int
    correlation_id: int
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: Epoch
    group: str
    partitions: tuple[str, ...]
    batches: tuple[Batch, ...]
    detail: str
    """The rest of what it asks."""


@dataclass(frozen=True, slots=True)
class RequestFault:
    """A fault befalls a request on its way."""

    time: int
    exchange: int
    what: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """The whole request has arrived at the node."""

    time: int
    exchange: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer leaves the node."""

    time: int
    exchange: int
    errors: tuple[str, ...]
    """Each as `partition: ERROR`, or the error alone; none where all went well."""
    producer_id: ProducerId
    producer_epoch: Epoch
    offsets: tuple[str, ...]
    """Each as `partition: name offset`."""
    batches: tuple[Batch, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class Return:
    """The whole answer has arrived at the client."""

    time: int
    exchange: int


@dataclass(frozen=True, slots=True)
class Loss:
    """The connection is gone, and with it a request, its answer, or the hope of one."""

    time: int
    exchange: int
    what: str
    """`request`: it never arrived whole.  `answer`: it left and never arrived whole.  `unanswered`: none had left."""


@dataclass(frozen=True, slots=True)
class Append:
    """A batch stands in a partition; it is durable when the lsn is."""

    time: int
    batch: Batch
    base_offset: int
    last_offset: int
    marker: str
    """COMMIT or ABORT; empty for data."""
    lsn: Lsn


@dataclass(frozen=True, slots=True)
class Durable:
    """All that was appended up to this lsn survives a power loss."""

    time: int
    lsn: Lsn


@dataclass(frozen=True, slots=True)
class Transition:
    """The coordinator writes a state of a transactional id into its journal."""

    time: int
    transactional_id: str
    before: str
    """Empty where there was none."""
    after: str
    """`Dead` where the id is forgotten."""
    producer_id: ProducerId
    producer_epoch: Epoch
    partitions: tuple[str, ...]
    lsn: Lsn


@dataclass(frozen=True, slots=True)
class Call:
    """An application calls a method of its client."""

    time: int
    call: int
    """Its number, by which its outcome is known."""
    client: str
    operation: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The call returned, or raised what `error` says."""

    time: int
    call: int
    error: str


@dataclass(frozen=True, slots=True)
class NodeChange:
    """The node started, or ended: `started`, `stopped`, `killed` or `power lost`."""

    time: int
    what: str
    life: int
    """Which start it was, from 1."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A kind of trouble that befalls the node begins, or is over."""

    time: int
    what: str
    is_over: bool


@dataclass(frozen=True, slots=True)
class CallFault:
    """A fault befalls a call between a coordinator and a leader: `marker`, `look` or `add`."""

    time: int
    call: str
    what: str
    about: str
    """The producer, its epoch, and partitions."""


@dataclass(frozen=True, slots=True)
class Note:
    """A line that somebody wrote into the history."""

    time: int
    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A promise was broken."""

    time: int
    """When it was seen."""
    failed: str
    """The property."""
    what: str


Event: TypeAlias = (
    Run
    | Request
    | RequestFault
    | Arrival
    | Answer
    | Return
    | Loss
    | Append
    | Durable
    | Transition
    | Call
    | Outcome
    | NodeChange
    | Trouble
    | CallFault
    | Note
    | Failure
)
KINDS: Final = (
    Run,
    Request,
    RequestFault,
    Arrival,
    Answer,
    Return,
    Loss,
    Append,
    Durable,
    Transition,
    Call,
    Outcome,
    NodeChange,
    Trouble,
    CallFault,
    Note,
    Failure,
)
