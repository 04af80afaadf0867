"""What members tell each other: the bytes of Apache Kafka's own clients, and everything that is said comes back."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.assignors import ASSIGNORS, COOPERATIVE_STICKY, RANGE, STICKY, Member
from fencepost.client.group_protocol import assignment, member_of, partitions_of, subscription
from fencepost.protocol.codec import encode_stored
from fencepost.protocol.consumer_protocol import ConsumerProtocolSubscription, ConsumerTopicPartitions
from fencepost.protocol.types import TopicPartition

PLACES = st.lists(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 9)), unique=True, max_size=6
).map(sorted)
A0, B1 = TopicPartition("a", 0), TopicPartition("b", 1)
TOPICS = pack(">i", 2) + b"\0\1a" + b"\0\1b"
OWNED = pack(">i", 2) + b"\0\1a" + pack(">ii", 1, 0) + b"\0\1b" + pack(">ii", 1, 1)
NO_RACK = pack(">h", -1)


@pytest.mark.parametrize(
    ("strategy", "user_data", "owned"),
    [
        (RANGE, pack(">i", -1), pack(">i", 0)),
        (STICKY, pack(">i", len(OWNED) + 4) + OWNED + pack(">i", 7), pack(">i", 0)),
        (COOPERATIVE_STICKY, pack(">ii", 4, 7), OWNED),
    ],
)
def test_a_subscription_has_the_bytes_of_version_3(strategy: str, user_data: bytes, owned: bytes) -> None:
    expected = pack(">h", 3) + TOPICS + user_data + owned + pack(">i", 7) + NO_RACK
    assert subscription(strategy, ["b", "a"], [A0, B1], 7) == expected


@given(PLACES, st.integers(-1, 2**31 - 1))
@pytest.mark.parametrize("strategy", ASSIGNORS)
def test_what_a_member_says_comes_back(strategy: str, owned: list[TopicPartition], generation: int) -> None:
    said = member_of(strategy, subscription(strategy, ["a", "b"], owned, generation), "instance")
    assert (said.topics, said.instance_id) == (["a", "b"], "instance")
    if strategy in (STICKY, COOPERATIVE_STICKY):
        assert sorted(said.owned) == owned
        assert said.generation == generation or not owned


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_older_members_are_understood(version: int) -> None:
    """Before version 2 the generation is in the assignor's own data."""
    owned = [ConsumerTopicPartitions(topic="a", partitions=[0])]
    said = ConsumerProtocolSubscription(
        topics=["a"], user_data=pack(">i", 5), owned_partitions=owned, generation_id=5 if version > 1 else -1
    )
    found = member_of(COOPERATIVE_STICKY, encode_stored(said, version), None)
    assert found == Member(["a"], None, [A0] if version else [], 5)


@pytest.mark.parametrize("version", [3, 4, 2**15 - 1])
def test_newer_members_are_understood_as_far_as_that_goes(version: int) -> None:
    """What a newer version adds comes behind what there is (Kafka's ConsumerProtocol)."""

    def newer(said: bytes) -> bytes:
        return pack(">h", version) + said[2:] + b"more than that"

    said = subscription(COOPERATIVE_STICKY, ["a"], [A0], 5)
    assert member_of(COOPERATIVE_STICKY, newer(said), None) == member_of(COOPERATIVE_STICKY, said, None)
    assert partitions_of(newer(assignment([A0, B1]))) == [A0, B1]


def test_the_generation_is_the_one_of_its_own_field_where_there_is_one() -> None:
    said = ConsumerProtocolSubscription(topics=["a"], user_data=pack(">i", 4), owned_partitions=[], generation_id=5)
    assert member_of(COOPERATIVE_STICKY, encode_stored(said, 3), None).generation == 5


@pytest.mark.parametrize("user_data", [b"", b"x", pack(">i", 2**31 - 1), OWNED + b"more than that"])
def test_data_that_no_sticky_assignor_wrote_says_nothing(user_data: bytes) -> None:
    said = encode_stored(ConsumerProtocolSubscription(topics=["a"], user_data=user_data), 3)
    assert member_of(STICKY, said, None).generation == -1


@given(PLACES)
def test_an_assignment_comes_back(partitions: list[TopicPartition]) -> None:
    assert partitions_of(assignment(partitions)) == partitions
    assert partitions_of(b"") == []
