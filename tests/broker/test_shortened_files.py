"""A file that becomes shorter, or vanishes, under a running node: an error for who reads it, and for nobody else."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from tests.broker.wire import SETTINGS, Client, batch, fetch, new_topic, produce, values

from fencepost.broker import running_broker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic


def first_at(client: Client, topic: str, timestamp: int) -> int:
    """What ListOffsets by time answers."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    answer: ListOffsetsResponse = client.ask(request, 7)
    return answer.topics[0].partitions[0].error_code


def log_file(data: Path, topic: str) -> Path:
    return data / f"{topic}-0" / f"{0:020d}.log"


@pytest.mark.parametrize("configs", [{}, {"index_interval_bytes": "1"}], ids=["", "in the index"])
@pytest.mark.parametrize("left", [0, 1, 60, 61, 100, -1])
def test_a_shortened_file_is_an_error_for_its_readers_only(
    tmp_path: Path, left: int, configs: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "fencepost")
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        topic, other = new_topic(client, **configs), new_topic(client)
        for number in range(4):
            assert produce(client, topic, batch(f"{number}")).error_code == ErrorCode.NONE
        assert produce(client, other, batch("well")).error_code == ErrorCode.NONE
        file = log_file(tmp_path, topic)
        with file.open("r+b") as handle:
            handle.truncate(left if left >= 0 else file.stat().st_size - 1)
        for _ in range(3):
            served = ["0", "1", "2"] if left < 0 else ["0"] if left == 100 else []
            if served:
                assert values(fetch(client, topic)) == served, "what is there is served"
            for lacking in (len(served), 3):
                assert fetch(client, topic, lacking).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            for timestamp in (1, -3):
                assert first_at(client, topic, timestamp) == (
                    ErrorCode.NONE if served else ErrorCode.KAFKA_STORAGE_ERROR
                )
            assert first_at(client, topic, -1) == ErrorCode.NONE
        assert values(fetch(client, other)) == ["well"]
        assert produce(client, other, batch("still")).error_code == ErrorCode.NONE
        client.close()
    said = [each.getMessage() for each in caplog.records if str(file) in each.getMessage()]
    assert len(said) == 1 and "put back a copy" in said[0]


@pytest.mark.parametrize("left", [0, 1, 61, 100, -1])
def test_a_shortened_file_is_not_written_to(tmp_path: Path, left: int, caplog: pytest.LogCaptureFixture) -> None:
    """Else there were zeros in the place of what is gone, in a file of the right length."""
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        topic, other = new_topic(client), new_topic(client)
        for number in range(4):
            assert produce(client, topic, batch(f"{number}")).error_code == ErrorCode.NONE
        file = log_file(tmp_path, topic)
        whole = file.read_bytes()
        length = left if left >= 0 else len(whole) - 1
        os.truncate(file, length)
        for _ in range(2):
            refused = produce(client, topic, batch("more"))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert str(file) in (refused.error_message or "") and "put back a copy" in (refused.error_message or "")
        assert file.read_bytes() == whole[:length]
        assert fetch(client, topic, 3).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(client, other, batch("well")).error_code == ErrorCode.NONE
        client.close()
    assert len([line for line in caplog.messages if "is damaged at byte" in line]) == 1
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        assert produce(client, topic, batch("more")).error_code == ErrorCode.KAFKA_STORAGE_ERROR, "it is offline"
        client.close()
    file.write_bytes(whole)
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        assert produce(client, topic, batch("more")).error_code == ErrorCode.NONE
        assert values(fetch(client, topic)) == ["0", "1", "2", "3", "more"]
        assert values(fetch(client, other)) == ["well"]
        client.close()


@pytest.mark.parametrize("size", [4, 600_000], ids=["of the same segment", "of the next one"])
def test_nothing_is_written_behind_a_gap_in_a_file_of_its_own_either(tmp_path: Path, size: int) -> None:
    """As a batch for which the newest segment has no room: the gap would lie within the log for good."""
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        topic = new_topic(client, segment_bytes="1048576")
        assert produce(client, topic, batch("0" * 600_000)).error_code == ErrorCode.NONE
        file = log_file(tmp_path, topic)
        os.truncate(file, file.stat().st_size - 1)
        assert produce(client, topic, batch("m" * size)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert [*file.parent.glob("*.log")] == [file]
        client.close()


@pytest.mark.parametrize("copied", [3, 2], ids=["whole", "older"])
def test_nothing_more_is_written_into_a_segment_that_was_found_damaged(tmp_path: Path, copied: int) -> None:
    """Else a copy, which is the way out, would lack all that was acknowledged since."""
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        topic = new_topic(client)
        for number in range(3):
            assert produce(client, topic, batch(f"{number}")).error_code == ErrorCode.NONE
        file = log_file(tmp_path, topic)
        whole = file.read_bytes()
        with file.open("r+b") as handle:
            handle.seek(16)
            handle.write(b"\x7f")  # a version of the format that nobody knows
        assert fetch(client, topic).error_code == ErrorCode.CORRUPT_MESSAGE
        for value in ("3", "4"):
            assert produce(client, topic, batch(value)).error_code == ErrorCode.NONE
        assert len(file.read_bytes()) == len(whole)
        assert fetch(client, topic).error_code == ErrorCode.CORRUPT_MESSAGE
        assert values(fetch(client, topic, 3)) == ["3", "4"]
        client.close()
    file.write_bytes(whole[: len(whole) // 3 * copied])
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        assert values(fetch(client, topic)) == ["0", "1", "2"][:copied]
        assert values(fetch(client, topic, 3)) == ["3", "4"]
        if copied < 3:
            assert fetch(client, topic, copied).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(client, topic, batch("5")).base_offset == 5
        assert len([*file.parent.glob("*.log")]) == 2, "it rolled once"
        client.close()
