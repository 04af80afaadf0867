"""A node from its directory: what is there is checked and recovered, and everything that handlers need is made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fencepost.broker.authorizer import Authorizer
from fencepost.broker.clock_jumps import ClockJumps
from fencepost.broker.compaction import cleaner_settings
from fencepost.broker.leader.fetch_sessions import FetchSessions
from fencepost.broker.leader.markers import LocalMarkers, PacedMarkers
from fencepost.broker.leader.registrar import LocalRegistrar, Registrar
from fencepost.broker.metadata import leader_epoch, rebuilding, starts
from fencepost.broker.metadata.cluster_id import check_cluster, settle_cluster
from fencepost.broker.metadata.features import Features
from fencepost.broker.metadata.producer_ids import PRODUCER_IDS, StoredProducerIds
from fencepost.broker.metadata.settings import Settings
from fencepost.broker.metadata.store import MetadataDamaged, MetadataStore, guarded
from fencepost.broker.metadata.topics import Topics
from fencepost.broker.node import Endpoint, Node
from fencepost.coordinator.group import GroupCoordinator, GroupSettings
from fencepost.coordinator.transaction import BlockProducerIds, TransactionCoordinator, TransactionSettings
from fencepost.coordinator.transaction.markers import Markers
from fencepost.log.cleaner.log_cleaner import LogCleaner
from fencepost.log.commit_log import StorageFailed
from fencepost.log.data_directory import is_foreign, what_is_wrong
from fencepost.log.storage import DirectoryUnusable, Storage
from fencepost.protocol.types import CONSUMER_OFFSETS, TRANSACTION_STATE, Milliseconds
from fencepost.runtime import Runtime, Slices


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """The parts and options that a node is put together from."""

    path: Path
    settings: Settings
    endpoint: Endpoint
    runtime: Runtime
    authorizer: Authorizer
    storage: Storage
    slices: Slices
    open_metadata: Callable[[Path], MetadataStore]
    rebuild_metadata: bool
    """Whether lost metadata may be made again from the partitions."""
    markers: Callable[[LocalMarkers], Markers]
    """Makes the way from the coordinator to the leaders of this node."""
    registrar: Callable[[LocalRegistrar], Registrar]
    """Makes the way from the leaders of this node to the coordinator."""


def open_node(parts: Parts) -> Node:
    """Recover everything but the coordinators' journals, which are still to be loaded.  Raises DirectoryUnusable."""
    path = parts.path
    try:
        if not parts.rebuild_metadata and is_foreign(parts.storage.disk, path):
            raise rebuilding.lost(path)
        parts.storage.take()
        return _open(parts)
    except StorageFailed as failure:
        raise DirectoryUnusable(f"{path} cannot be used: {failure}; put back a copy of it") from failure
    except OSError as error:
        raise DirectoryUnusable(f"{path} cannot be used: {what_is_wrong(error, path)}") from error


def _open(parts: Parts) -> Node:
    path, storage, settings, runtime = parts.path, parts.storage, parts.settings, parts.runtime
    try:
        store = parts.open_metadata(path / "metadata.sqlite")
    except OSError:
        raise  # which is no reason to do without it
    except Exception as error:
        raise _unusable(path, error) from error
    metadata: MetadataStore = guarded(store, storage.space.attempt, storage.fail)
    try:
        check_cluster(metadata, storage.disk, path)
        rebuilding.check(metadata, storage, wanted=parts.rebuild_metadata)
        known = starts.check(metadata, storage)
        may_lack_records = storage.recover()
        rebuilt = rebuilding.begin(metadata, storage, wanted=parts.rebuild_metadata)
        cluster_id = settle_cluster(metadata, storage.disk, path, runtime.random, storage.space.attempt)
        features = Features.load(metadata)
        epoch = leader_epoch.settle(metadata, storage, known, may_lack_records=may_lack_records, rebuilt=rebuilt)
        topics = Topics(metadata, storage, settings, runtime.random, epoch)
        topics.load()
        if known.metadata_is_older and not rebuilt:
            rebuilding.catch_up(metadata, storage, PRODUCER_IDS)
        starts.begin(metadata, storage, known, {leader_epoch.KEY: str(epoch)})
        storage.start()
        starts.finish(metadata, storage)
        if rebuilt:
            rebuilding.finish(metadata, storage, PRODUCER_IDS)
        return _node(parts, metadata, cluster_id, features, topics)
    except BaseException as error:
        metadata.close()
        if isinstance(error, MetadataDamaged):
            raise _unusable(path, error) from error
        raise


def _unusable(path: Path, error: Exception) -> DirectoryUnusable:
    return DirectoryUnusable(
        f"{path}/metadata.sqlite cannot be used: {error}; put back a copy of it, or move it away and start once "
        f"with {rebuilding.OPTION} (docs/operating.md)"
    )


def _node(parts: Parts, metadata: MetadataStore, cluster_id: str, features: Features, topics: Topics) -> Node:
    storage, settings, clock, chance = parts.storage, parts.settings, parts.runtime.clock, parts.runtime.random
    loop = asyncio.get_running_loop()
    jumps = ClockJumps(clock, loop.time)
    groups = GroupCoordinator(storage, clock, _group_settings(settings, topics), chance)
    local = LocalMarkers(storage, groups, clock)
    markers = parts.markers(local)
    transactions = TransactionCoordinator(
        storage,
        BlockProducerIds(StoredProducerIds(metadata)),
        PacedMarkers(markers, parts.slices),
        clock,
        _transaction_settings(settings, topics, features),
        jumps.since,
    )
    return Node(
        settings=settings,
        endpoint=parts.endpoint,
        clock=clock,
        jumps=jumps,
        authorizer=parts.authorizer,
        storage=storage,
        metadata=metadata,
        cluster_id=cluster_id,
        features=features,
        topics=topics,
        transactions=transactions,
        groups=groups,
        local_markers=local,
        markers=markers,
        registrar=parts.registrar(LocalRegistrar(transactions, storage)),
        cleaner=LogCleaner(storage, cleaner_settings(settings), clock, loop),
        fetch_sessions=FetchSessions(
            settings.number("max.incremental.fetch.session.cache.slots"),
            Milliseconds(settings.number("min.incremental.fetch.session.eviction.ms")),
            chance,
        ),
        slices=parts.slices,
    )


def _transaction_settings(settings: Settings, topics: Topics, features: Features) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=Milliseconds(settings.number("transaction.max.timeout.ms")),
        id_expiration_ms=Milliseconds(settings.number("transactional.id.expiration.ms")),
        expiry_interval_ms=Milliseconds(settings.number("transaction.remove.expired.transaction.cleanup.interval.ms")),
        partitions=topics.internal_count(TRANSACTION_STATE),
        two_phase_commit=bool(settings["transaction.two.phase.commit.enable"]),
        transaction_version=features.transaction_version,
    )


def _group_settings(settings: Settings, topics: Topics) -> GroupSettings:
    return GroupSettings(
        initial_rebalance_delay_ms=Milliseconds(settings.number("group.initial.rebalance.delay.ms")),
        min_session_timeout_ms=Milliseconds(settings.number("group.min.session.timeout.ms")),
        max_session_timeout_ms=Milliseconds(settings.number("group.max.session.timeout.ms")),
        max_size=settings.number("group.max.size"),
        partitions=topics.internal_count(CONSUMER_OFFSETS),
        offsets_retention_ms=Milliseconds(settings.number("offsets.retention.minutes") * 60_000),
        metadata_max_bytes=settings.number("offset.metadata.max.bytes"),
    )
