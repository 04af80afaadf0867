"""What a reader is told of a batch in a file that is not as it was written: at once, and as Apache Kafka tells it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.broker.test_shortened_files import first_at, log_file
from tests.broker.wire import SETTINGS, Client, batch, fetch, new_topic, produce, values

from fencepost.broker import running_broker
from fencepost.protocol.errors import ErrorCode

SIZE = len(batch("0"))


def zeroed(data: bytes) -> bytes:
    return data[:SIZE] + bytes(SIZE) + data[2 * SIZE :]


def without_its_end(data: bytes) -> bytes:
    return data[: 2 * SIZE - 1]


def of_another_format(data: bytes) -> bytes:
    return data[: SIZE + 16] + b"\x7f" + data[SIZE + 17 :]


def at_another_offset(data: bytes) -> bytes:
    return data[:SIZE] + (7).to_bytes(8, "big") + data[SIZE + 8 :]


def longer_than_the_file(data: bytes) -> bytes:
    return data[: SIZE + 8] + (1 << 20).to_bytes(4, "big") + data[SIZE + 12 :]


def scrambled(data: bytes) -> bytes:
    return data[:SIZE] + Random(1).randbytes(SIZE) + data[2 * SIZE :]


@pytest.mark.parametrize("configs", [{}, {"index_interval_bytes": "1"}], ids=["", "in the index"])
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (zeroed, ErrorCode.CORRUPT_MESSAGE),
        (of_another_format, ErrorCode.CORRUPT_MESSAGE),
        (at_another_offset, ErrorCode.CORRUPT_MESSAGE),
        (longer_than_the_file, ErrorCode.CORRUPT_MESSAGE),
        (scrambled, ErrorCode.CORRUPT_MESSAGE),
        (without_its_end, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_readers_are_told_whether_a_batch_is_damaged_or_is_not_there(
    damage: Callable[[bytes], bytes],
    told: ErrorCode,
    configs: dict[str, Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Consumers of Apache Kafka, and librdkafka's, raise the one and try again without a word for the other."""
    caplog.set_level(logging.WARNING, "fencepost")
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        topic = new_topic(client, **configs)
        for number in range(3):
            assert produce(client, topic, batch(f"{number}")).error_code == ErrorCode.NONE
        file = log_file(tmp_path, topic)
        file.write_bytes(damage(file.read_bytes()))
        for _ in range(2):
            assert values(fetch(client, topic)) == ["0"], "what is whole is served"
            assert fetch(client, topic, 1).error_code == told
        client.close()
    (line,) = (each for each in caplog.messages if str(file) in each)
    assert told.name in line and "put back a copy" in line


def test_who_asks_for_an_offset_by_time_is_told_that_a_batch_is_damaged(tmp_path: Path) -> None:
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        topic = new_topic(client)
        assert produce(client, topic, batch("0")).error_code == ErrorCode.NONE
        file = log_file(tmp_path, topic)
        file.write_bytes(bytes(SIZE))
        assert first_at(client, topic, 1) == ErrorCode.CORRUPT_MESSAGE
        client.close()
