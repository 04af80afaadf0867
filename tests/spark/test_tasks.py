"""Only the claim that is exactly the next one may write (design of the shared transaction)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.types import ProducerIdAndEpoch
from fencepost.spark.tasks import follows

CLAIMS = st.builds(ProducerIdAndEpoch.of, st.integers(0, 3), st.integers(0, 32767))


@given(st.one_of(st.none(), CLAIMS), CLAIMS)
def test_a_claim_follows_only_its_predecessor(known: ProducerIdAndEpoch | None, claimed: ProducerIdAndEpoch) -> None:
    expected = (
        claimed.producer_epoch == 0
        if known is None
        else claimed == ProducerIdAndEpoch.of(known.producer_id, known.producer_epoch + 1)
        or (claimed.producer_id != known.producer_id and claimed.producer_epoch == 0 and known.producer_epoch >= 32766)
    )
    assert follows(claimed, known) == expected


@given(st.integers(2, 6), st.integers(0, 5))
def test_of_several_claims_one_after_the_other_only_the_first_follows(count: int, epoch: int) -> None:
    known = ProducerIdAndEpoch.of(7, epoch)
    claims = [ProducerIdAndEpoch.of(7, epoch + 1 + n) for n in range(count)]
    assert [follows(claim, known) for claim in claims] == [True] + [False] * (count - 1)
    assert all(follows(later, earlier) for earlier, later in pairwise(claims))
