"""Where this coordinator answers differently from Apache Kafka 4.3, on purpose, and why.

Everything else is meant to be the same, code by code.  The reference documentation is generated from this table.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Ground(StrEnum):
    """The grounds that a difference may rest on; there are no others."""

    TIME_OUTS = "KIP-588: a producer outlives the time-out of its transaction"
    INSTANCE_EPOCH = "KIP-360: an instance keeps its identity until another one takes over"
    BEYOND = "KIP-939 and the admin's requests: what Apache Kafka does not have, or not whole"
    TRAPS = "Doing alike would lose or double a record, mute a connection, leave something hanging, or mislead"
    BOUNDED = "The work for one request is bounded: nobody waits for what another one asks"


class Difference(NamedTuple):
    """One deliberate difference.  `source` names the document or fact that asks for it."""

    ground: Ground
    request: str
    situation: str
    kafka: str
    ours: str
    reason: str
    source: str


_REPEATABLE = "a lost answer must not cost the producer its identity, however often it asks and whoever answers"

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        Ground.INSTANCE_EPOCH,
        "InitProducerId",
        "EMPTY or COMPLETE_*, pair of this instance more than one epoch back",
        "90",
        "the current pair; nothing changes",
        "every epoch from the instance epoch on belongs to the running instance; only a new instance fences it",
        "KIP-360 instance epoch",
    ),
    Difference(
        Ground.INSTANCE_EPOCH,
        "InitProducerId",
        "the pair one epoch back, after a coordinator failover",
        "90",
        "the current pair",
        "the instance epoch is in the journal; " + _REPEATABLE,
        "KIP-360 instance epoch; facts §13.7 (3)",
    ),
    Difference(
        Ground.INSTANCE_EPOCH,
        "InitProducerId",
        "ONGOING, pair of this instance with an earlier epoch",
        "51, and the transaction is aborted",
        "the current pair; the transaction goes on",
        "a delayed duplicate must not kill the transaction of the producer that sent it",
        "KIP-360 instance epoch; facts §13.7 (1)",
    ),
    Difference(
        Ground.INSTANCE_EPOCH,
        "InitProducerId",
        "ONGOING, pair of an older instance, or an epoch above the current one",
        "51, and the transaction is aborted; the caller is told 90 when it comes back, or let in with an epoch above",
        "90; the transaction goes on",
        "a zombie must not abort its successor's transaction",
        "KIP-360 four cases; facts §13.7 (1), §14",
    ),
    Difference(
        Ground.TIME_OUTS,
        "InitProducerId",
        "transaction.version 0 or 1, the pair whose transaction was aborted by this call or by a time-out",
        "90",
        "the bumped epoch",
        "the producer may go on after a time-out; " + _REPEATABLE,
        "KIP-360, KIP-588",
    ),
    Difference(
        Ground.TRAPS,
        "InitProducerId",
        "transaction.version 0 or 1, epoch 32766 after such an abort",
        "-1",
        "a fresh producer id and epoch 0",
        "epoch 32767 is not given to clients; the id rotates as it does everywhere else",
        "facts §14, hidden trap",
    ),
    Difference(
        Ground.INSTANCE_EPOCH,
        "InitProducerId",
        "the current epoch is 32766, and the pair before it is repeated",
        "-1",
        "the current pair",
        _REPEATABLE,
        "facts §2.3, §13.7 (2)",
    ),
    Difference(
        Ground.INSTANCE_EPOCH,
        "InitProducerId",
        "the current epoch is 32766, and the pair is an older instance's or ahead",
        "-1",
        "90 (47 below v4)",
        "it is fencing as at every other epoch",
        "facts §2.3, §13.7 (2)",
    ),
    Difference(
        Ground.INSTANCE_EPOCH,
        "InitProducerId",
        "the producer id rotated, and the pair is the new id with epoch 32766, the last one of the old id",
        "the current pair",
        "90 (47 below v4)",
        "nobody was ever given that pair; only its epoch is the one before",
        "comparison with Apache Kafka 4.3.1",
    ),
    Difference(
        Ground.TRAPS,
        "InitProducerId",
        "transaction.version was lowered to 0 after a version 2 transaction of the id",
        "35 once, then 51 until failover",
        "the next pair",
        "a downgrade must not block the id",
        "facts §3.6; KIP-890",
    ),
    Difference(
        Ground.INSTANCE_EPOCH,
        "InitProducerId",
        "the old pair after the producer id rotated, a second time or after a failover; until the next transaction",
        "90",
        "the current pair",
        _REPEATABLE,
        "facts §14, hidden trap",
    ),
    Difference(
        Ground.INSTANCE_EPOCH,
        "InitProducerId",
        "the pair with which an expired id was created anew, repeated",
        "90",
        "the current pair",
        _REPEATABLE,
        "KIP-360 failure handling, case 2",
    ),
    Difference(
        Ground.BEYOND,
        "InitProducerId",
        "keepPreparedTxn with transaction.two.phase.commit.enable",
        "35",
        "the transaction stays open, and the answer carries its pair beside the caller's new one",
        "a prepared transaction must survive its producer",
        "KIP-939",
    ),
    Difference(
        Ground.INSTANCE_EPOCH,
        "EndTxn v5",
        "Prepare* or Complete*, by v4 or a fence, which bump nothing; the pair one epoch back, of an older instance",
        "0 and the current pair for the same outcome (51 in Prepare*), 48 for the other",
        "90",
        "a fenced producer must not be handed its successor's pair",
        "KIP-360 instance epoch",
    ),
    Difference(
        Ground.TIME_OUTS,
        "EndTxn",
        "commit by v5, the pair whose transaction was timed out",
        "48 (49 or 90 later)",
        "120, with a tagged field that names the time-out",
        "the producer aborts and goes on instead of dying",
        "KIP-588; design, time-outs",
    ),
    Difference(
        Ground.TIME_OUTS,
        "EndTxn",
        "abort, the pair whose transaction was timed out",
        "90 below v5 (49 if the id rotated), 90 or 49 by v5 once the producer id or epoch moved on",
        "0; v5 carries the current pair. 51 while the time-out's markers are being written",
        "the transaction is aborted, which is what the caller asks for",
        "KIP-588; design, time-outs",
    ),
    Difference(
        Ground.TIME_OUTS,
        "Produce v3-v11, AddPartitionsToTxn v0-v3, AddOffsetsToTxn, EndTxn v0-v4",
        "librdkafka (or franz-go, but for Produce and an abort) by its name, the pair whose transaction was timed out",
        "47 by Produce, else 90 (47 below v2; 49 if the id rotated)",
        "59",
        "the producer aborts, asks for the next epoch and goes on instead of dying; other clients would not",
        "KIP-588; design, time-outs; clients_after_a_timeout.md",
    ),
    Difference(
        Ground.TIME_OUTS,
        "TxnOffsetCommit v5 and later",
        "the pair whose transaction was timed out",
        "47",
        "120, with a tagged field that names the time-out",
        "the producer aborts and goes on instead of dying",
        "KIP-588; design, time-outs",
    ),
    Difference(
        Ground.TRAPS,
        "EndTxn v5, AddPartitionsToTxn v4 and later (implicit add)",
        "transaction.version 0, nothing open that began at version 2",
        "35 once, then 51 until failover",
        "35 every time, and nothing changes",
        "a refused request must not block the id",
        "facts §3.6, §14, hidden trap",
    ),
    Difference(
        Ground.TRAPS,
        "EndTxn v5",
        "transaction.version was lowered to 0 while a version 2 transaction is open",
        "35 once, then 51 until failover",
        "the transaction ends as it began",
        "a downgrade loses no transaction that was complete",
        "facts §3.6; KIP-890",
    ),
    Difference(
        Ground.TRAPS,
        "AddPartitionsToTxn v4 and later (implicit add)",
        "transaction.version was lowered to 0 while a version 2 transaction is open",
        "35 once, then 51 until failover",
        "120: abort, and begin again in the old protocol",
        "the seed's answer for a broker that cannot add any more",
        "KIP-890, compatibility",
    ),
    Difference(
        Ground.TRAPS,
        "markers",
        "a partition answers 47 or 52",
        "given up: the id stays in Prepare* until a failover",
        "tried again with a growing delay, and logged as an error",
        "an id must not be stuck",
        "facts §13.7 (5)",
    ),
    Difference(
        Ground.TRAPS,
        "markers",
        "a partition is unknown to the coordinator's node",
        "taken for deleted",
        "waited for, unless its topic is known to be deleted",
        "a lagging view must not leave a hanging transaction",
        "facts §13.7 (15)",
    ),
    Difference(
        Ground.TRAPS,
        "loading",
        "a record of the journal cannot be read",
        "what was read so far is published, or an older state of the id is kept",
        "nothing is published; 14 until it is repaired",
        "half a journal makes wrong answers",
        "facts §1.8, §13.7 (6)",
    ),
    Difference(
        Ground.TRAPS,
        "loading",
        "a marker in the journal, of a transaction that wrote to __transaction_state itself",
        "the rest of the journal partition is lost until it is compacted",
        "passed over",
        "ids behind it would be unknown",
        "comparison with Apache Kafka 4.3.1",
    ),
    Difference(
        Ground.TRAPS,
        "AddPartitionsToTxn v4 and later",
        "the same transactional id twice in one request",
        "both results are those of the last one",
        "each its own result",
        "an answer must say what happened",
        "facts §14, hidden trap",
    ),
    Difference(
        Ground.TRAPS,
        "AddPartitionsToTxn v4 and later",
        "no transactions in the request",
        "no answer, and the connection stays mute",
        "an empty answer",
        "every request is answered",
        "facts §13.7 (12), §14, hidden trap",
    ),
    Difference(
        Ground.BOUNDED,
        "ListTransactions v2",
        "a pattern of more than 1024 characters, or that is 128 KB compiled",
        "tried",
        "128 INVALID_REGULAR_EXPRESSION",
        "one request must not hold up the broker",
        "KIP-1152",
    ),
)
