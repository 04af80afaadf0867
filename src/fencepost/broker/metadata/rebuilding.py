"""The metadata made again from the partitions, where its file is lost.

`partition.metadata` has the topic ids, the directories' names have the topics and numbers.  What is nowhere else is
lost: the settings of topics, finalized features.  So that nothing more is, topics keep everything from then on
(retention without limit) until somebody gives them their settings again.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.metadata.topic_rules import INTERNAL_SETTINGS, LARGEST_COUNT, topic_name_error
from fencepost.coordinator.loading import JournalUnreadable
from fencepost.coordinator.transaction import journal
from fencepost.log.checkpoint_files import PARTITION_METADATA
from fencepost.log.data_directory import DirectoryUnusable, FoundPartition
from fencepost.log.partition import Partition
from fencepost.log.storage import Storage
from fencepost.node_log import get_logger
from fencepost.protocol.types import FIRST_OFFSET, NO_PRODUCER_ID, TRANSACTION_STATE, ProducerId

logger = get_logger(__name__)

OPTION: Final = "--rebuild-metadata"
FIRST_PRODUCER_ID: Final = 1_000_000_000
"""Producer ids go on so far beyond the largest one that is found: of those that were given and have written nothing
that is left, there are fewer."""
UNFINISHED: Final = "rebuilding"
"""Key that is there until a start has read every partition and said to the commit log what there is."""
KEEP_EVERYTHING: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


class FoundTopic(NamedTuple):
    """A topic as its partitions say it is."""

    topic_id: uuid.UUID
    partitions: int
    missing: int
    """The number of partitions that have no directory."""


def lost(root: object) -> DirectoryUnusable:
    """The refusal of a start that finds partitions, and nothing that knows of any topic."""
    return DirectoryUnusable(
        f"{root}/metadata.sqlite is lost or empty, and there are partitions in {root}: put back a copy of it, or start "
        f"once with {OPTION}, which makes it again from them without the settings of topics (docs/operating.md)"
    )


def topics_of(found: Iterable[FoundPartition], largest: int) -> dict[str, FoundTopic]:
    """The topics that partitions are of; `largest`: how many a topic may have.  Raises DirectoryUnusable.

    A directory without an id is left out, unless it has a file that should say one: it is offline then.  The copy of a
    partition under another name, or under another number, is left out if the commit log tells that it is the copy.
    """
    by_name: dict[str, list[FoundPartition]] = {}
    for each in found:
        if (each.topic_id is not None or each.unreadable) and each.index < largest:
            by_name.setdefault(each.topic, []).append(each)
    ids = {name: _id_of(partitions) for name, partitions in by_name.items()}
    by_name = {name: _without_copies(partitions) for name, partitions in by_name.items()}
    originals = {ids[name] for name, partitions in by_name.items() if any(each.logged for each in partitions)}
    topics: dict[str, FoundTopic] = {}
    for name, partitions in by_name.items():
        topic_id = ids[name]
        if topic_id in originals and not any(each.logged for each in partitions):
            continue  # a copy
        twin = next((other for other, topic in topics.items() if topic.topic_id == topic_id), None)
        if twin is not None:
            raise DirectoryUnusable(
                f"the partitions of {twin!r} and of {name!r} have the same topic id: one of them is a copy, move it "
                f"out of the data directory, then start with {OPTION} again"
            )
        count = max(each.index for each in partitions) + 1
        topics[name] = FoundTopic(topic_id, count, count - len(partitions))
    return topics


def _without_copies(partitions: list[FoundPartition]) -> list[FoundPartition]:
    """Those of a topic that are not the copy of another one of it: a copy would make the topic larger for ever."""
    if not any(each.logged for each in partitions):
        return partitions  # The commit log knows nothing of this topic.
    return [each for each in partitions if each.logged or not each.misplaced]


def _id_of(partitions: Sequence[FoundPartition]) -> uuid.UUID:
    """The id that most of a topic's partitions have, those that the commit log knows before all others.

    Raises DirectoryUnusable if none of them has one.
    """
    logged = [each for each in partitions if each.logged]
    votes = Counter(each.topic_id for each in logged or partitions if each.topic_id is not None)
    if not votes:
        name = partitions[0].topic
        raise DirectoryUnusable(
            f"no {PARTITION_METADATA} of the partitions of {name!r} says what its topic id is: write 'topic_id: ' and "
            f"22 letters into {name}-{partitions[0].index}/{PARTITION_METADATA}, or move what begins with {name}- out "
            f"of the data directory, then start with {OPTION} again"
        )
    return min(votes.items(), key=lambda item: (-item[1], str(item[0])))[0]


def check(store: MetadataStore, storage: Storage, *, wanted: bool) -> None:
    """See that the store knows its topics or, where it is to be made again (`wanted`), has lost them.

    Raises DirectoryUnusable.  Nothing is changed.
    """
    empty = not store.list("")
    if empty and not wanted and storage.has_partitions:
        raise lost(storage.path)
    if wanted and not empty and store.get(UNFINISHED) is None:
        raise DirectoryUnusable(f"{storage.path}/metadata.sqlite knows its topics: start again without {OPTION}")


def begin(store: MetadataStore, storage: Storage, *, wanted: bool) -> bool:
    """Write topics down anew, after `check` and before they are opened, if the store has lost them and it is `wanted`.

    True if `finish` is to be called when the storage has started.  Raises DirectoryUnusable.
    """
    if store.get(UNFINISHED) is not None:
        storage.adopt()
        return True
    if not wanted:
        return False
    found = [each for each in storage.adopt() if topic_name_error(each.topic) is None]
    topics = topics_of(found, LARGEST_COUNT)
    store.write({key: (value, 0) for key, value in changes(topics, INTERNAL_SETTINGS).items()})
    for name, topic in topics.items():
        gap = f", {topic.missing} of them without a directory, which are made empty" if topic.missing else ""
        logger.warning("made topic %s again with %d partitions%s", name, topic.partitions, gap)
    return True


def finish(store: MetadataStore, storage: Storage, producer_ids: str) -> None:
    """Note durably that the rebuilding is over.  `producer_ids`: the key of the next producer id."""
    store.write({UNFINISHED: (None, 1), producer_ids: (_unused_producer_id(storage), 1)})


def catch_up(store: MetadataStore, storage: Storage, producer_ids: str) -> None:
    """See to it, where metadata is older than the open partitions, that no producer id is given out twice.

    `producer_ids`: the key of the next producer id.  Raises NothingLeft, StorageFailed.
    """
    known, first = store.get(producer_ids), _unused_producer_id(storage)
    store.write({producer_ids: (first, 0 if known is None else known.version)})
    logger.warning(
        "%s/metadata.sqlite is older than the rest of the directory: what was changed since is as it was (topics made "
        "since are named and left, deleted ones are known again, settings and levels are the former ones), "
        "and new producer ids begin at %s, so that none is given out twice; with the newest copy nothing is lost",
        storage.path,
        first.decode(),
    )


def _unused_producer_id(storage: Storage) -> bytes:
    return str(FIRST_PRODUCER_ID + largest_producer_id(storage.partitions()) + 1).encode()


def changes(topics: Mapping[str, FoundTopic], internal: Mapping[str, Mapping[str, str]]) -> dict[str, bytes]:
    """The values that the metadata store gets for these topics, by key; `internal`: settings of the broker's own."""
    found = {}
    for name, (topic_id, count, _) in topics.items():
        settings = dict(internal.get(name, KEEP_EVERYTHING))
        described = {"id": str(topic_id), "partitions": count, "settings": settings}
        found[f"topic/{name}"] = json.dumps(described).encode()
    found["producer-ids"] = str(FIRST_PRODUCER_ID).encode()
    found[UNFINISHED] = b"1"
    return found


def largest_producer_id(partitions: Iterable[Partition]) -> ProducerId:
    """The largest one that any partition, or any transaction, knows of; -1 for none."""
    return max((known for partition in partitions for known in _producer_ids(partition)), default=NO_PRODUCER_ID)


def _producer_ids(partition: Partition) -> Iterator[ProducerId]:
    yield from partition.producers.entries
    for header, _ in partition.scan(partition.log_start_offset):
        yield header.producer_id
    if partition.topic != TRANSACTION_STATE:
        return
    try:
        for records in journal.read(partition.index, partition.scan(FIRST_OFFSET)):
            for record in records:
                entry = journal.decode(partition.index, record)
                if entry is not None and entry.transaction is not None:
                    yield entry.transaction.producer_id
                    yield entry.transaction.next_producer_id
    except JournalUnreadable:
        return  # It is told when the coordinator reads it; what it hides lies within the margin.
