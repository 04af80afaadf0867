"""Records of one call in chunks: all of them in order, up to the first that is refused, as large as is said."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.bulk import OVERHEAD, Chunk, chunks, filled
from fencepost.protocol.compression import Compression

MOST = OVERHEAD + 40
ITEMS = st.one_of(st.none(), st.binary(max_size=30), st.builds(bytes, st.integers(0, 45)))
PAIRS = st.lists(st.tuples(ITEMS, ITEMS), max_size=60)
SIZES = st.integers(1, 400)


def size(pair: tuple[bytes | None, bytes | None]) -> int:
    return OVERHEAD + sum(len(each or b"") for each in pair)


def parts(pairs: Sequence[tuple[bytes | None, bytes | None]], chunk_bytes: int, with_keys: bool) -> list[Chunk]:
    keys = [key for key, _ in pairs] if with_keys else None
    return [*chunks([value for _, value in pairs], keys, chunk_bytes, MOST)]


@given(PAIRS, SIZES, st.booleans())
def test_every_record_before_the_first_that_is_too_large_is_there_once_and_none_behind_it(
    pairs: list[tuple[bytes | None, bytes | None]], chunk_bytes: int, with_keys: bool
) -> None:
    wanted = pairs if with_keys else [(None, value) for _, value in pairs]
    refused = next((n for n, pair in enumerate(wanted) if size(pair) > MOST), None)
    found = parts(pairs, chunk_bytes, with_keys)
    assert [pair for each in found for pair in zip(each.keys, each.values, strict=True)] == wanted[:refused]
    told = [each.refused for each in found]
    assert told[:-1] == [None] * len(told[:-1])
    assert told[-1:] == ([wanted[refused]] if refused is not None else [None] if found else [])


@given(PAIRS, SIZES, st.booleans())
def test_a_chunk_is_as_large_as_it_says_and_has_two_records_only_where_they_have_room(
    pairs: list[tuple[bytes | None, bytes | None]], chunk_bytes: int, with_keys: bool
) -> None:
    for chunk in parts(pairs, chunk_bytes, with_keys):
        sizes = [size(pair) for pair in zip(chunk.keys, chunk.values, strict=True)]
        assert chunk.size == sum(sizes)
        assert chunk.largest >= max(sizes, default=0)
        assert len(sizes) < 2 or chunk.size <= 2 * chunk_bytes


@given(PAIRS, SIZES)
def test_batches_of_a_chunk_have_its_records_and_no_more_bytes_than_they_may(
    pairs: list[tuple[bytes | None, bytes | None]], batch_bytes: int
) -> None:
    for chunk in parts(pairs, 200, with_keys=True):
        made = [*filled(chunk.keys, chunk.values, chunk.largest, 0, Compression.NONE, batch_bytes)]
        assert sum(each.count for each in made) == len(chunk.values)
        assert all(each.size <= batch_bytes or each.count == 1 for each in made)
