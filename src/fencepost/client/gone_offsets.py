"""Errors and log lines for a partition without a position, or whose log does not have its position."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict

from fencepost.client.errors import NoOffsetError
from fencepost.client.seldom import Seldom
from fencepost.client.transactional_id import OffsetAndMetadata, with_metadata
from fencepost.protocol.types import TopicPartition

logger = logging.getLogger(__name__)


def no_position(at: TopicPartition) -> NoOffsetError:
    """The error of a partition that has no position, where `auto_offset_reset` is "error"."""
    return NoOffsetError(f"no position for {at.topic}-{at.partition}, and auto_offset_reset is 'error': seek() first")


def gone_position(at: TopicPartition, position: int | OffsetAndMetadata) -> NoOffsetError:
    """The error of a position that the log does not have, where `auto_offset_reset` is "error"."""
    return NoOffsetError(
        f"the log of {at.topic}-{at.partition} does not have offset {with_metadata(position).offset}, where reading was"
        " to go on: retention, or who deleted records, may have taken it. auto_offset_reset is 'error': seek() to where"
        " it is to go on"
    )


class GoneOffsets:
    """Logs that reading goes on elsewhere than at its position: records between may never have been read.

    Of each partition at most once a minute: retention may be faster than a reader.
    """

    def __init__(self, *, in_commit_order: bool) -> None:
        self._in_commit_order = in_commit_order
        self._said: defaultdict[TopicPartition, Seldom] = defaultdict(Seldom)

    def say_where_reading_goes_on(
        self, at: TopicPartition, gone: int | OffsetAndMetadata, position: int | OffsetAndMetadata
    ) -> None:
        if (end := self._said[at].due(asyncio.get_running_loop().time())) is None:
            return
        if self._in_commit_order:
            logger.warning(
                "%s: the log has not what comes after %s any more: reading begins anew at %s, and what was kept of "
                "open transactions is dropped%s",
                *(at, with_metadata(gone), with_metadata(position), end),
            )
        else:
            logger.warning(
                "%s-%s: the log does not have offset %s, where reading was to go on: it goes on at %s, as "
                "auto_offset_reset says. Retention, or who deleted records, may have taken what is between, unread%s",
                *(at.topic, at.partition, with_metadata(gone).offset, with_metadata(position).offset, end),
            )
