"""Keys and ids go to the partition that every other client and broker finds for them."""

from __future__ import annotations

from random import Random

import aiokafka.partitioner
import kafka.partitioner.default
import pytest

from fencepost.protocol.partitioning import java_hash, murmur2, partition_for_id, partition_for_key

pytestmark = pytest.mark.usefixtures("each_twin")


# From the tests of Apache Kafka's own Utils.murmur2.
@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(data: bytes, hashed: int) -> None:
    assert murmur2(data) == hashed % (1 << 32)


def test_keys_of_every_length_hash_as_elsewhere() -> None:
    random = Random(1)
    for length in [*range(70), 1000, 4097]:
        for _ in range(5):
            key = random.randbytes(length)
            assert murmur2(key) == aiokafka.partitioner.murmur2(key) % (1 << 32)
            assert murmur2(key) == kafka.partitioner.default.murmur2(key) % (1 << 32)


def test_a_key_goes_where_other_clients_send_it() -> None:
    random = Random(2)
    theirs = aiokafka.partitioner.DefaultPartitioner()
    for count in (1, 2, 3, 7, 50, 1000):
        for _ in range(50):
            key = random.randbytes(random.randrange(20))
            assert partition_for_key(key, count) == theirs(key, list(range(count)), list(range(count)))


@pytest.mark.parametrize(
    ("text", "hashed"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("\ud800", 0xD800)],
)
def test_known_hashes_of_java(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


@pytest.mark.parametrize("text", ["my-transactional-id", "Grüße", "\U0001f512 lock", "x" * 500])
def test_a_hash_is_the_sum_that_java_defines(text: str) -> None:
    """s[0] * 31^(n-1) + ... + s[n-1] over UTF-16 code units, in 32 bits with sign."""
    data = text.encode("utf-16-le")
    units = [int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2)]
    total = sum(unit * 31**place for place, unit in enumerate(reversed(units)))
    assert java_hash(text) == (total + 2**31) % 2**32 - 2**31


def test_an_id_whose_hash_has_no_positive_form_goes_to_partition_0() -> None:
    assert partition_for_id("polygenelubricants", 50) == 0


def test_ids_use_every_partition_and_no_other() -> None:
    found = {partition_for_id(f"orders-{number}", 50) for number in range(1000)}
    assert found == set(range(50))
