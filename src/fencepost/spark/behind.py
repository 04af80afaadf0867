"""How far the sources of a query are behind their topics, from the progress that Spark reports: a pure function.

Spark's own source puts these figures into `metrics`, and its topics into `description`.  The interface for sources in
Python (Spark 4.3) has no place for either; but `latestOffset` is there, and names topics, cluster and positions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from fencepost.spark.positions import CLUSTER, Positions


class Behind(NamedTuple):
    """How far one source is behind: the end for readers of its isolation level, less the position of the query.

    The figures are offsets, over the partitions; they have the meaning of Spark's own maxOffsetsBehindLatest, ....
    """

    description: str
    """A text with the topics and the cluster, for a person."""
    max_offsets: int
    avg_offsets: float
    min_offsets: int


def offsets_behind_latest(progress: Mapping[str, Any] | None) -> list[Behind]:
    """How far each source with the format `fencepost` is behind, in their order.  `progress`: `query.lastProgress`.

    A partition that the query has not come to, or whose topic was made anew since, counts from offset 0.  Empty before
    the first progress.
    """
    found = []
    for source in (progress or {}).get("sources", ()):
        latest, read = _fields(source.get("latestOffset")), _fields(source.get("endOffset"))
        if CLUSTER in latest:
            found.append(_behind(Positions.decode(latest), Positions.decode(read)))
    return found


def _behind(latest: Positions, read: Positions) -> Behind:
    counts = [
        max(end - (0 if read.is_in_another_topic(at.topic, latest) else read.offsets.get(at, 0)), 0)
        for at, end in latest.offsets.items()
    ]
    topics = ", ".join(sorted({at.topic for at in latest.offsets}))
    description = f"fencepost[{topics or 'no topic'} of cluster {latest.cluster_id}]"
    counts = counts or [0]
    return Behind(description, max(counts), sum(counts) / len(counts), min(counts))


def _fields(offset: Any) -> Mapping[str, Any]:
    """An offset as Spark has it, JSON or its value, as a mapping; empty for a source that counts something else."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    return offset if isinstance(offset, Mapping) else {}
