"""`fencepost transactions` on a node: what it prints, and what it says of what it cannot do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.cli.test_cli import said

from fencepost.broker import running_broker
from fencepost.client import Admin, HangingTransaction, Producer, TopicPartition
from fencepost.client.blocking import Admin as BlockingAdmin
from fencepost.client.blocking import Producer as BlockingProducer
from fencepost.protocol.types import Epoch, ProducerId

AT = TopicPartition("t", 0)


def rows(told: str) -> list[list[str]]:
    return [line.split("\t") for line in told.splitlines()]


def test_open_transactions_are_listed_and_described(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=PLAINTEXT\nclient.id=me\n")

    async def in_transaction(servers: str) -> None:
        async with Producer(servers, transactional_id="payments") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send_and_wait("t", b"1", partition=0)
                await asyncio.to_thread(look, servers)

    def look(servers: str) -> None:
        command = ("transactions", "--bootstrap-server", servers, "--command-config", str(config))
        assert rows(said(capsys, *command, "list")[1])[1:] == [["payments", "Ongoing"]]
        assert rows(said(capsys, *command, "list", "--transactional-id-pattern", "x.*")[1])[1:] == []
        assert rows(said(capsys, *command, "list", "--duration-filter", "3600000")[1])[1:] == []
        heads, values = rows(said(capsys, *command, "describe", "--transactional-id", "payments")[1])
        found = dict(zip(heads, values, strict=True))
        assert (found["TransactionState"], found["TopicPartitions"]) == ("Ongoing", "t-0")
        assert rows(said(capsys, *command, "find-hanging", "--max-transaction-timeout", "0")[1])[1:] == []
        behind = ("transactions", "list", "--bootstrap-server", servers, "--command-config", str(config))
        assert said(capsys, *behind) == said(capsys, *command, "list")
        code, told = said(capsys, *command, "describe", "--transactional-id", "other")
        assert (code, "has none of that name" in told) == (2, True)
        abort = ("abort", "--topic", "t", "--partition", "0", "--start-offset")
        code, told = said(capsys, *command, *abort, "0")
        assert (code, "was written to" in told) == (2, True)
        code, told = said(capsys, *command, *abort, "7")
        assert (code, "no transaction that is open in t-0 begins at offset 7: `describe-producers` names" in told) == (
            2,
            True,
        )
        code, told = said(capsys, *command, "describe-producers", "--topic", "t", "--partition", "0")
        heads, *producers = rows(told)
        assert (code, heads[0], heads[-1]) == (0, "ProducerId", "CurrentTransactionStartOffset")
        assert [(each[1], each[3], each[5]) for each in producers] == [("0", "0", "0")]
        code, told = said(capsys, *command, "describe-producers", "--topic", "t", "--partition", "7")
        assert (code, "UNKNOWN_TOPIC_OR_PARTITION" in told) == (2, True)

    with running_broker() as broker:
        asyncio.run(in_transaction(broker.bootstrap_servers))


def test_a_name_ends_no_row_and_tells_a_terminal_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["of\ttwo", "of\ntwo", "\x1b[2Jcleared", "grün"]
    with running_broker() as broker:
        for name in names:
            with BlockingProducer(broker.bootstrap_servers, transactional_id=name) as producer:
                producer.init_transactions()
        told = said(capsys, "transactions", "--bootstrap-server", broker.bootstrap_servers, "list")[1]
    assert rows(told)[1:] == [[name, "Empty"] for name in (r"\x1b[2Jcleared", "grün", r"of\ttwo", r"of\ntwo")]


def test_one_that_hangs_is_shown_by_partition_and_ended(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    async def find(_: Admin, names: object, *, max_transaction_timeout_ms: int) -> list[HangingTransaction]:
        asked.append((names, max_transaction_timeout_ms))
        return [HangingTransaction(at, 3, ProducerId(7), Epoch(2), 5, 99) for at in (AT, TopicPartition("t", 1))]

    async def abort(_: Admin, *given: object, max_transaction_timeout_ms: int) -> None:
        asked.append((*given, max_transaction_timeout_ms))

    monkeypatch.setattr(Admin, "find_hanging_transactions", find)
    monkeypatch.setattr(Admin, "abort_transaction", abort)
    command = ("transactions", "--bootstrap-server", "127.0.0.1:1")
    told = said(capsys, *command, "find-hanging", "--topic", "t", "--partition", "1")[1]
    assert rows(told)[1:] == [["t", "1", "7", "2", "5", "3", "99", "-"]]
    told = said(capsys, *command, "find-hanging", "--topic", "t", "--partition", "0")[1]
    assert [row[1] for row in rows(told)[1:]] == ["0"]
    where = ("--topic", "t", "--partition", "1", "--start-offset", "3", "--max-transaction-timeout", "2")
    assert said(capsys, *command, "abort", *where) == (
        0,
        "aborted the transaction that began at offset 3 of t-1\n",
    )
    assert asked == [(["t"], 900_000), (["t"], 900_000), (TopicPartition("t", 1), 3, 120_000)]


def test_that_nothing_hangs_is_not_said_of_a_partition_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with running_broker() as broker:
        with BlockingAdmin(broker.bootstrap_servers) as admin:
            admin.create_topic("t", partitions=2)
        command = ("transactions", "--bootstrap-server", broker.bootstrap_servers, "find-hanging", "--topic", "t")
        assert rows(said(capsys, *command, "--partition", "1")[1])[1:] == []
        for number in ("2", "-1", "99999999999"):
            code, told = said(capsys, *command, "--partition", number)
            assert (code, f"--partition {number}: topic t has 2 of them" in told) == (2, True)


@pytest.mark.parametrize(
    ("settings", "arguments", "why"),
    [
        ("", ["--bootstrap-server", "http://a:1", "list"], "--bootstrap-server has 'http://a:1'"),
        (
            "sasl.mechanism=PLAIN",
            ["--bootstrap-server", "a:1", "list"],
            "sasl.mechanism is given, but security.protocol",
        ),
        ("sasl.mechanism", ["list"], "--bootstrap-server is missing"),
        ("ssl.keystore.location=a", ["--bootstrap-server", "a:1", "list"], "give a PEM file"),
        ("", ["--bootstrap-server", "a:1", "find-hanging", "--partition", "0"], "--partition is given without --topic"),
        ("", ["--bootstrap-server", "a:1", "list", "--duration-filter", "-5"], "--duration-filter=-5"),
        (
            "",
            ["--bootstrap-server", "a:1", "find-hanging", "--max-transaction-timeout", "-1"],
            "--max-transaction-timeout -1: it must be at least 0",
        ),
        ("", ["--bootstrap-server", "a:1"], "ACTION"),
    ],
)
def test_what_it_cannot_use_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, settings: str, arguments: list[str], why: str
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(settings)
    code, told = said(capsys, "transactions", "--command-config", str(config), *arguments)
    assert code == 2
    assert why in told
    assert told.count("\n") == 1


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = str(tmp_path / "none")
    code, told = said(capsys, "transactions", "--bootstrap-server", "a:1", "--command-config", where, "list")
    assert (code, where in told) == (2, True)
