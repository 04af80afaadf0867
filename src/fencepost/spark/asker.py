"""Blocking requests of a source's planner to its cluster: one at a time, each answered before it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.client.cluster import Cluster
from fencepost.client.portal import Portal
from fencepost.protocol.types import TopicPartition
from fencepost.spark.offsets import ends_behind, parted, pinned, positions_of, release, report
from fencepost.spark.options import Bound, SourceOptions
from fencepost.spark.positions import Positions


class Asker:
    """Asks the cluster for a source's planner, with an event loop and connections of its own; each call blocks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._portal = Portal("fencepost-spark-source")
        self._cluster = Cluster(
            options.bootstrap_servers, client_id="fencepost-spark-source", security=options.security
        )

    def positions(self, bound: Bound) -> Positions:
        return self.positions_of([bound])[0]

    def positions_of(self, bounds: Sequence[Bound]) -> list[Positions]:
        return self._portal.call(positions_of(self._cluster, bounds, self._options))

    def ends_behind(self, known: Positions) -> Positions:
        return self._portal.call(ends_behind(self._cluster, known, self._options))

    def parted(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return self._portal.call(parted(self._cluster, epochs))

    def pinned(self, first: Positions) -> Positions:
        assert self._options.application_id is not None
        work = pinned(self._cluster, self._options.application_id, first.offsets)
        return first._replace(offsets=self._portal.call(work), epochs={})

    def release(self, partitions: Sequence[TopicPartition]) -> None:
        assert self._options.application_id is not None
        self._portal.call(release(self._cluster, self._options.application_id, partitions))

    def report(self, positions: Positions) -> None:
        assert self._options.group_id is not None
        self._portal.call(report(self._cluster, self._options.group_id, positions))

    def close(self) -> None:
        self._portal.call(self._cluster.close())
        self._portal.close()
