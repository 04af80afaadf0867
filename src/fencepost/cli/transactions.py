"""`fencepost transactions`: lists and describes transactions, finds those that hang, and aborts one (KIP-664)."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from fencepost.cli import Refused
from fencepost.cli.files import properties_in
from fencepost.cli.properties import NAMES, NotUsable, options_of
from fencepost.client import Admin, ClientError, TopicPartition
from fencepost.client.security import renamed

_MINUTE_MS: Final = 60_000

#: what an error of the client names -> what a person gives here
_SHOWN: Final = {
    **NAMES,
    "running_longer_than_ms": "--duration-filter",
    "describe_producers": "describe-producers",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of kafka-transactions.sh; here, how to connect may stand behind the action too."""
    _add_connection(parser, default=None)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, help="what is asked for (required)")
    listing = actions.add_parser("list", help="transactional ids, and the state of each")
    listing.add_argument("--duration-filter", metavar="MS", type=int, help="only those open for longer (default: all)")
    listing.add_argument("--transactional-id-pattern", metavar="RE2", help="only those that fit (default: all)")
    describing = actions.add_parser("describe", help="one transactional id, and the partitions of its transaction")
    describing.add_argument("--transactional-id", metavar="ID", required=True, help="which (required)")
    writing = actions.add_parser("describe-producers", help="who writes to a partition, and what is open there")
    writing.add_argument("--topic", metavar="NAME", required=True, help="where they write (required)")
    writing.add_argument("--partition", metavar="N", type=int, required=True, help="where they write (required)")
    finding = actions.add_parser("find-hanging", help="transactions that are open, and that nobody will end")
    finding.add_argument("--topic", metavar="NAME", help="only in this topic (default: in all)")
    finding.add_argument("--partition", metavar="N", type=int, help="only in this one of it (default: in all)")
    aborting = actions.add_parser("abort", help="end a transaction that hangs, in one partition")
    aborting.add_argument("--topic", metavar="NAME", required=True, help="where it is open (required)")
    aborting.add_argument("--partition", metavar="N", type=int, required=True, help="where it is open (required)")
    aborting.add_argument("--start-offset", metavar="OFFSET", type=int, required=True, help="its first (required)")
    for each in (finding, aborting):
        each.add_argument(
            "--max-transaction-timeout",
            metavar="MINUTES",
            type=int,
            default=15,
            help="transaction.max.timeout.ms of the brokers, in minutes (default %(default)s)",
        )
    for each in (listing, describing, writing, finding, aborting):
        _add_connection(each, default=argparse.SUPPRESS)  # what stands in front of the action is kept


def _add_connection(parser: argparse.ArgumentParser, default: str | None) -> None:
    where = "where brokers are (required)"
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", default=default, help=where)
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        default=default,
        help="a properties file that says how to connect, with Apache Kafka's names (default: without TLS and SASL)",
    )


def run(options: argparse.Namespace) -> int:
    """Carry the action out, and print its rows; exit code 0.

    Raises Refused for options that cannot be used, and for requests that the brokers refuse.
    """
    if options.bootstrap_server is None:
        raise Refused("--bootstrap-server is missing: say where brokers are, as in --bootstrap-server localhost:9092")
    if (minutes := getattr(options, "max_transaction_timeout", 0)) < 0:
        raise Refused(f"--max-transaction-timeout {minutes}: it must be at least 0")
    given: dict[str, Any] = {}
    if options.command_config is not None:
        try:
            given = options_of(properties_in("--command-config", options.command_config))
        except NotUsable as wrong:
            raise Refused(f"--command-config {options.command_config}: {wrong}") from None
    try:
        for row in asyncio.run(_answer(options, given)):
            print("\t".join(_on_one_line(str(cell)) for cell in row))
    except (TypeError, ValueError) as wrong:
        raise Refused(renamed(str(wrong), _SHOWN)) from None
    except ClientError as error:
        raise Refused(renamed(str(error), _SHOWN)) from None
    return 0


def _on_one_line(text: str) -> str:
    """Text of others with escapes for all that cannot be printed, as it could end the row or control a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


async def _answer(options: argparse.Namespace, given: dict[str, Any]) -> list[Sequence[object]]:
    async with Admin(options.bootstrap_server, **given) as admin:
        return await _ACTIONS[options.action](admin, options)


async def _list(admin: Admin, options: argparse.Namespace) -> list[Sequence[object]]:
    found = await admin.list_transactions(
        running_longer_than_ms=options.duration_filter, pattern=options.transactional_id_pattern
    )
    return [("TransactionalId", "TransactionState"), *sorted(found.items())]


async def _describe(admin: Admin, options: argparse.Namespace) -> list[Sequence[object]]:
    found = await admin.describe_transaction(options.transactional_id)
    if found is None:
        raise Refused(f"--transactional-id {options.transactional_id}: the cluster has none of that name")
    heads = ("TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TimeoutMs", "StartTimeMs")
    values = (
        *(found.transactional_id, found.producer_id, found.producer_epoch, found.state),
        *(found.timeout_ms, found.start_time_ms),
    )
    return [(*heads, "TopicPartitions"), (*values, _together(found.partitions))]


def _together(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, sorted(partitions)))


async def _describe_producers(admin: Admin, options: argparse.Namespace) -> list[Sequence[object]]:
    at = TopicPartition(options.topic, options.partition)
    heads = ("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp")
    rows: list[Sequence[object]] = [(*heads, "CurrentTransactionStartOffset")]
    for each in (await admin.describe_producers([at]))[at]:
        who = each.producer_id, each.producer_epoch, each.coordinator_epoch
        rows.append((*who, each.last_sequence, each.last_timestamp, each.transaction_start_offset))
    return rows


async def _find_hanging(admin: Admin, options: argparse.Namespace) -> list[Sequence[object]]:
    if options.partition is not None and options.topic is None:
        raise Refused("--partition is given without --topic: name its topic")
    hanging = await admin.find_hanging_transactions(
        None if options.topic is None else [options.topic],
        max_transaction_timeout_ms=options.max_transaction_timeout * _MINUTE_MS,
    )
    heads = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp")
    rows: list[Sequence[object]] = [(*heads, "TransactionalId")]
    for each in hanging:
        if options.partition in (None, each.partition.partition):
            who = each.producer_id, each.producer_epoch, each.coordinator_epoch
            rows.append((*each.partition, *who, each.start_offset, each.last_timestamp, each.transactional_id or "-"))
    if options.partition is not None and len(rows) == 1:
        await _must_be_there(admin, TopicPartition(options.topic, options.partition))
    return rows


async def _must_be_there(admin: Admin, at: TopicPartition) -> None:
    """Raises Refused if the topic does not have this partition, of which it would else be said that nothing hangs."""
    described = (await admin.describe_topics([at.topic]))[at.topic]
    if at.partition not in [each.partition for each in described.partitions]:
        raise Refused(
            f"--partition {at.partition}: topic {at.topic} has {len(described.partitions)} of them, from 0 on"
        )


async def _abort(admin: Admin, options: argparse.Namespace) -> list[Sequence[object]]:
    at = TopicPartition(options.topic, options.partition)
    await admin.abort_transaction(
        at, options.start_offset, max_transaction_timeout_ms=options.max_transaction_timeout * _MINUTE_MS
    )
    return [(f"aborted the transaction that began at offset {options.start_offset} of {at}",)]


_ACTIONS: Final[dict[str, Callable[[Admin, argparse.Namespace], Coroutine[Any, Any, list[Sequence[object]]]]]] = {
    "list": _list,
    "describe": _describe,
    "describe-producers": _describe_producers,
    "find-hanging": _find_hanging,
    "abort": _abort,
}
