"""Where leaders of partitions, and the node as a whole, answer differently from Apache Kafka 4.3, on purpose, and why.

Everything else is meant to be the same, code by code.  The reference documentation is generated from this table.
"""

from __future__ import annotations

from fencepost.coordinator.transaction.differences import Difference, Ground

_COMPARED = "comparison with Apache Kafka 4.3.1"
_UNREADABLE = "nobody can read the rest, and nothing may be dropped in silence"

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        Ground.HEADERS,
        "Produce",
        "records that are not what the header of their batch says: another count, other times, broken, not compressed, "
        "bytes behind what is compressed",
        "87 or -1; a wrong largest time is put right, bytes behind are dropped",
        "appended as they are, except in a compacted topic (87) and where they are compressed anew, but cannot be "
        "unfolded (-1)",
        "a leader reads the header and the checksum only; clients that make such batches are broken everywhere",
        "design, rules of the house",
    ),
    Difference(
        Ground.TRAPS,
        "Produce",
        "bytes behind a whole batch that are none, but might be the beginning of one",
        "the batch is appended, the rest dropped",
        "87; nothing is added to a transaction either",
        _UNREADABLE,
        _COMPARED,
    ),
    Difference(
        Ground.TRAPS,
        "Produce",
        "no records at all (null)",
        "no answer, and none to any later request of the connection",
        "87",
        "one bad request must not mute its connection",
        "facts §14, hidden trap",
    ),
    Difference(
        Ground.TRAPS,
        "Produce v3 to v11",
        "transaction.partition.verification.enable=false: a transactional batch with epoch -1 that would be appended",
        "opens a transaction of epoch -1",
        "87",
        "DescribeProducers names the epoch to end it with, and a marker of epoch -1 is refused: it would hang",
        _COMPARED,
    ),
    Difference(
        Ground.TRAPS,
        "Produce",
        "the transactional bit, and a producer id below 0",
        "appended unverified; read_committed shows it",
        "87",
        "no marker could ever end it",
        "facts §14, hidden trap",
    ),
    Difference(
        Ground.TRAPS,
        "Produce",
        "a partition twice in one request",
        "the last one is appended, and one answer given",
        "42 for each; neither is appended",
        "what a producer wrote must not vanish without an error",
        _COMPARED,
    ),
    Difference(
        Ground.TRAPS,
        "Produce",
        "after a transactional batch was refused: a batch, transactional or not, with a larger sequence",
        "45, up to the next marker",
        "judged by what is in the log",
        "a refused batch has no sequence to go on from",
        "facts §14, hidden trap",
    ),
    Difference(
        Ground.TRAPS,
        "Produce",
        "v3 to v11, verified together with a request of another version",
        "now and then the other version's code (120 for 48)",
        "the code of its own version",
        "a client must be told what it understands",
        "facts §14, hidden trap",
    ),
    Difference(
        Ground.TRAPS,
        "Fetch, ListOffsets",
        "DeleteRecords has passed the beginning of an open transaction, into the middle of a batch",
        "the last stable offset is the beginning of that batch, before the start of the log",
        "the start of the log",
        "a read_committed reader is sent there, refused, sent there again, until the transaction ends",
        _COMPARED,
    ),
    Difference(
        Ground.TRAPS,
        "ListOffsets",
        "a time; DeleteRecords has passed a whole segment that is still there and had a record of that time or later",
        "no offset, until the segment is removed",
        "the first record of that time or later",
        "whoever looks for a time would go to the end of the log and miss what is left",
        _COMPARED,
    ),
    Difference(
        Ground.TRAPS,
        "WriteTxnMarkers",
        "a topic twice in one marker; a marker without a partition that exists, behind others",
        "written, but never answered; the connection is mute",
        "written once and answered",
        "one bad request must not mute its connection",
        _COMPARED,
    ),
    Difference(
        Ground.TRAPS,
        "WriteTxnMarkers",
        "a marker with producer id or epoch -1 among others",
        "-1 for each; those before it are written all the same, those behind it are not",
        "-1 for this one; the others are written",
        "an answer must say what happened",
        _COMPARED,
    ),
    Difference(
        Ground.TRAPS,
        "DeleteTopics",
        "an internal topic",
        "deleted",
        "17",
        "every position of every group, or the state of every transaction, would be gone",
        _COMPARED,
    ),
    Difference(
        Ground.TRAPS,
        "CreateTopics, CreatePartitions",
        "an internal topic",
        "made with any number of partitions, and grown",
        "17; 42",
        "where a group or an id lives is a hash modulo that number: they would be looked for where they are not",
        _COMPARED,
    ),
    Difference(
        Ground.TRAPS,
        "AlterConfigs, IncrementalAlterConfigs",
        "a resource twice (AlterConfigs); a setting twice (IncrementalAlterConfigs)",
        "no answer, and the connection is mute",
        "42",
        "one bad request must not mute its connection",
        _COMPARED,
    ),
    Difference(
        Ground.TRAPS,
        "Metadata that may create a topic",
        "a name that differs from another topic's in dots and underscores only",
        "3, for ever",
        "17",
        "a client would wait for a topic that never comes",
        _COMPARED,
    ),
)
