"""What a member says: a coordinator that adds up what it hears knows how things stand, whatever gets lost."""

from __future__ import annotations

import uuid
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.consumer_group.heartbeats import Place, Standing, by_topic, heartbeat, places_in
from fencepost.protocol.messages import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.consumer_group_heartbeat import Assignment

PLACES = st.frozensets(st.tuples(st.sampled_from([uuid.UUID(int=n) for n in range(3)]), st.integers(0, 4)), max_size=6)
STANDINGS = st.builds(
    Standing,
    group_id=st.just("g"),
    member_id=st.just("m"),
    group_instance_id=st.sampled_from([None, "i"]),
    rebalance_timeout_ms=st.integers(0, 3),
    server_assignor=st.sampled_from([None, "uniform"]),
    topics=st.sampled_from([(), ("t",), ("t", "u")]),
    regex=st.sampled_from([None, "a.*", "b.*"]),
    owned=PLACES,
)


class Coordinator:
    """What it knows of a member by what it was told."""

    def __init__(self) -> None:
        self.knows: dict[str, Any] = {}

    def hear(self, said: ConsumerGroupHeartbeatRequest) -> None:
        told = {
            "group_instance_id": said.instance_id,
            "rebalance_timeout_ms": None if said.rebalance_timeout_ms < 0 else said.rebalance_timeout_ms,
            "topics": said.subscribed_topic_names,
            "regex": said.subscribed_topic_regex,
            "server_assignor": said.server_assignor,
            "owned": None
            if said.topic_partitions is None
            else places_in(Assignment(topic_partitions=said.topic_partitions)),
        }
        self.knows |= {name: value for name, value in told.items() if value is not None}


@given(steps=st.lists(st.tuples(STANDINGS, st.booleans()), min_size=1, max_size=6), arrives=st.booleans())
def test_a_coordinator_knows_how_things_stand_after_each_heartbeat_that_it_answered(
    steps: list[tuple[Standing, bool]], arrives: bool
) -> None:
    """One that is lost may have arrived, or not."""
    coordinator, told = Coordinator(), None
    for now, is_lost in steps:
        if not is_lost or arrives:
            coordinator.hear(heartbeat(now, told, epoch=3))
        told = None if is_lost else now
        if not is_lost:
            knows = coordinator.knows
            assert (knows["topics"], knows["regex"] or None) == (list(now.topics), now.regex)
            assert (knows["owned"], knows["rebalance_timeout_ms"]) == (now.owned, now.rebalance_timeout_ms)
            assert now.server_assignor is None or knows["server_assignor"] == now.server_assignor


@given(now=STANDINGS)
def test_what_is_known_is_not_said_again(now: Standing) -> None:
    said = heartbeat(now, now, epoch=3)
    assert (said.group_id, said.member_id, said.member_epoch) == ("g", "m", 3)
    assert said.rebalance_timeout_ms == -1
    rest = (said.subscribed_topic_names, said.subscribed_topic_regex, said.server_assignor, said.topic_partitions)
    assert rest == (None, None, None, None)


@given(now=STANDINGS)
def test_who_joins_says_everything_and_that_it_has_nothing(now: Standing) -> None:
    said = heartbeat(now._replace(owned=frozenset()), now, epoch=0)
    assert said.topic_partitions == []
    assert (said.subscribed_topic_names, said.rebalance_timeout_ms) == (list(now.topics), now.rebalance_timeout_ms)


@given(places=PLACES)
def test_places_are_written_down_by_topic_and_read_again(places: frozenset[Place]) -> None:
    written = by_topic(places)
    assert len({topic.topic_id for topic in written}) == len(written)
    assert places_in(Assignment(topic_partitions=written)) == places
    assert places_in(None) is None
