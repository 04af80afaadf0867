"""Looks topics up anew, with one request however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ConnectionLostError, UnreachableError


async def look_up_anew(cluster: Cluster, topics: Sequence[str]) -> None:
    """Forget the metadata of these topics, which may have grown, and ask for all of them at once.

    One that is not there, or any where no answer came, is asked for by `Cluster.topic`, with its deadline and errors.
    """
    for name in topics:
        cluster.forget_topic(name)
    if len(topics) > 1:
        with suppress(ConnectionLostError, UnreachableError):
            await cluster.refresh(topics)
