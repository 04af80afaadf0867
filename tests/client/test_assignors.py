"""Range assignment: everything is given out once, to those who asked for it, in fair shares."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.assignors import assign_ranges
from fencepost.protocol.types import TopicPartition

TOPICS = ["a", "b", "c"]


@given(
    st.dictionaries(st.text(min_size=1, max_size=4), st.lists(st.sampled_from(TOPICS), unique=True), min_size=1),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12)),
)
def test_every_partition_goes_to_one_subscriber_in_fair_shares(
    subscriptions: dict[str, list[str]], counts: dict[str, int]
) -> None:
    assigned = assign_ranges(subscriptions, counts)
    assert set(assigned) == set(subscriptions)
    given_out = [at for partitions in assigned.values() for at in partitions]
    wanted = [topic for topic in counts if any(topic in topics for topics in subscriptions.values())]
    assert sorted(given_out) == sorted(TopicPartition(topic, n) for topic in wanted for n in range(counts[topic]))
    for topic in wanted:
        shares = [
            sum(at.topic == topic for at in assigned[member])
            for member, topics in subscriptions.items()
            if topic in topics
        ]
        assert max(shares) - min(shares) <= 1
        ordered = [n for member in sorted(subscriptions) for topic_, n in assigned[member] if topic_ == topic]
        assert ordered == list(range(counts[topic])), "in the order of the members, as Kafka's assignor has it"
        in_order = [
            sum(at.topic == topic for at in assigned[member])
            for member in sorted(subscriptions)
            if topic in subscriptions[member]
        ]
        assert in_order == sorted(in_order, reverse=True), "the first ones get one more"
    for member, partitions in assigned.items():
        assert all(at.topic in subscriptions[member] for at in partitions)
