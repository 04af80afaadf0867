"""Records as properties are tried with them."""

from __future__ import annotations

from hypothesis import strategies as st

#: Lengths on both sides of where a number takes another byte.
BYTES = st.one_of(st.none(), st.binary(max_size=80), st.builds(bytes, st.sampled_from([63, 64, 127, 8191, 8192])))
HEADERS = st.lists(st.tuples(st.text(max_size=70), st.one_of(st.none(), st.binary(max_size=70))), max_size=3)
TIMESTAMPS = st.one_of(st.integers(0, 2**42), st.integers(1_700_000_000_000, 1_700_000_010_000))
RECORDS = st.lists(st.tuples(TIMESTAMPS, BYTES, BYTES, HEADERS), min_size=1, max_size=8)
#: Differences up to 2^63 - 1; -1 stands for no timestamp at all.
ANY_TIMESTAMP = st.one_of(st.just(-1), st.integers(-(2**62), 2**62 - 1), TIMESTAMPS)
ODD_RECORDS = st.lists(st.tuples(ANY_TIMESTAMP, BYTES, BYTES, HEADERS), min_size=1, max_size=8)
