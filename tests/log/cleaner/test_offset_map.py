"""The map of newest offsets against a plain dictionary."""

from __future__ import annotations

from hashlib import blake2b
from random import Random

import pytest

from fencepost.log.cleaner.offset_map import OffsetMap
from fencepost.protocol.types import Offset

LONG = b"z" * 33
KEYS = [b"", b"a", b"z" * 31, b"z" * 32, LONG, bytes(1_000_000), bytes(32), bytes(31)]
KEYS.append(blake2b(LONG, digest_size=32).digest())  # which is what the map keeps of that one


@pytest.mark.parametrize("seed", range(20))
def test_it_knows_the_newest_offset_of_every_key(seed: int) -> None:
    random, model = Random(seed), dict[bytes, int]()
    found, offset = OffsetMap(Offset(100), 1000), 100
    for _ in range(60):
        offset += random.randrange(1, 4)
        key = random.choice(KEYS)
        assert found.put(key, Offset(offset))
        model[key] = offset
    found.latest = Offset(offset)
    assert {key: found.get(key) for key in KEYS} == {key: model.get(key, -1) for key in KEYS}
    assert found.newest == set(model.values())
    for first in range(95, offset + 3):
        for last in (first, first + 1, first + 30):
            none = all(each not in found.newest for each in range(first, last + 1))
            assert found.supersedes_all(Offset(first), Offset(last)) is (first >= 100 and last <= offset and none)


def test_it_takes_no_more_keys_than_it_may_but_newer_offsets_of_known_ones() -> None:
    found = OffsetMap(Offset(0), 2)
    assert found.put(b"a", Offset(0))
    assert found.put(b"b", Offset(1))
    assert not found.put(b"c", Offset(2))
    assert found.put(b"a", Offset(3))
    assert (found.get(b"a"), found.get(b"c"), len(found), found.utilization) == (3, -1, 2, 1.0)
    assert found.newest == {1, 3}


def test_it_always_has_room_for_one_key() -> None:
    assert OffsetMap(Offset(0), 0).put(b"a", Offset(0)), "or a pass would never get on"


def test_a_wide_batch_is_read_instead_of_counted() -> None:
    found = OffsetMap(Offset(0), 1)
    found.latest = Offset(2**40)
    assert not found.supersedes_all(Offset(5), Offset(5 + 2**31)), "its offsets are not looked at one by one"
