"""What a member subscribes to, by name and by pattern, and topics that are known by their ids."""

from __future__ import annotations

import pytest
from tests.client.consumer_group.coordinator import PARTITIONS, Coordinator, place, play
from tests.client.consumer_group.test_member import INTERVAL, poll_for, until
from tests.client.test_rebalances import Notes

from fencepost.client import SubscriptionPattern, TopicPartition
from fencepost.client.errors import BrokerError, MisuseError, UnsupportedByBrokerError
from fencepost.protocol.errors import ErrorCode


def test_another_subscription_is_told_and_what_is_left_is_given_up_first() -> None:
    more = [TopicPartition("u", 0)]

    async def scenario(group: Coordinator) -> None:
        group.nodes.leaders |= dict.fromkeys(more, 0)
        group.target = lambda known: [at for at in (*PARTITIONS, *more) if at.topic in known.topics]
        async with group.member() as reader:
            notes = Notes()
            reader.subscribe("t", "u", listener=notes)
            await until(reader, lambda: reader.assignment() == [*PARTITIONS, *more])
            reader.subscribe("u", listener=notes)
            await until(reader, lambda: reader.assignment() == more)
            await poll_for(reader, INTERVAL)
            assert notes.told[-2:] == [("revoked", [0, 1, 2, 3]), ("assigned", [])]
            assert group.only.assigned == {place(at) for at in more}
            reader.subscribe(pattern="[tu]", listener=notes)
            await until(reader, lambda: reader.assignment() == [*PARTITIONS, *more])
            assert group.only.topics == ["t", "u"]
            await reader.unsubscribe()
            assert group.members == {}
            reader.subscribe("t")
            await until(reader, lambda: reader.assignment() == PARTITIONS)

    play(scenario)


def test_a_topic_that_no_broker_knows_by_its_id_yet_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """It was deleted, or is about to be known."""
    new = TopicPartition("u", 0)

    async def scenario(group: Coordinator) -> None:
        group.target = lambda _: [*PARTITIONS, new]
        async with group.member() as reader:
            reader.subscribe("t", "u")
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            await poll_for(reader, 5)
            group.nodes.leaders[new] = 0
            await until(reader, lambda: reader.assignment() == [*PARTITIONS, new])
            await poll_for(reader, INTERVAL)
            assert group.only.assigned == {place(at) for at in [*PARTITIONS, new]}
            assert "u" not in reader._cluster.missing, "it is said again if it is missed again"
        assert sum("topic 'u' is not there" in record.message for record in caplog.records) == 1

    play(scenario)


def test_a_topic_made_anew_is_the_same_by_name_and_another_one_by_its_id() -> None:
    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            before = group.ids
            group.ids = lambda name: before(f"{name} again")
            group.rebalance()
            await poll_for(reader, 8 * INTERVAL)
            assert group.only.assigned == {(group.ids("t"), at.partition) for at in PARTITIONS}
            assert reader.assignment() == PARTITIONS
            assert group.only.epoch == group.epoch

    play(scenario)


def test_a_pattern_of_the_broker_is_told_and_taken_back_and_what_it_gives_is_read() -> None:
    more = [TopicPartition("u", 0)]

    async def scenario(group: Coordinator) -> None:
        group.nodes.leaders |= dict.fromkeys(more, 0)
        group.target = lambda known: [*PARTITIONS, *more] if known.regex else PARTITIONS
        async with group.member() as reader:
            notes = Notes()
            reader.subscribe(pattern=SubscriptionPattern("(t|u)"), listener=notes)
            await until(reader, lambda: reader.assignment() == [*PARTITIONS, *more])
            assert (group.only.topics, group.only.regex) == ([], "(t|u)")
            await poll_for(reader, 3 * INTERVAL)
            assert len(notes.told) == 1
            assert not group.nodes.made_topics, "what fits is looked at, not made"
            reader.subscribe("t", listener=notes)
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            assert (group.only.topics, group.only.regex) == (["t"], "")

    play(scenario)


def test_a_pattern_of_the_broker_is_refused_without_the_new_protocol() -> None:
    async def scenario(group: Coordinator) -> None:
        async with group.member(group_protocol="classic") as reader:
            with pytest.raises(MisuseError, match="a SubscriptionPattern is for a group with"):
                reader.subscribe(pattern=SubscriptionPattern("t"))

    play(scenario)


def test_a_topic_that_is_wanted_later_and_is_not_there_is_made_where_the_broker_does_that_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(group: Coordinator) -> None:
        async with group.member() as reader:
            await until(reader, lambda: reader.assignment() == PARTITIONS)
            group.nodes.made_topics = False
            for topics in (("t", "u"), ("u", "v"), ("t", "u")):
                reader.subscribe(*topics)
                await poll_for(reader, INTERVAL)
            assert group.nodes.made_topics
        for name in "uv":
            assert sum(f"topic '{name}' is not there" in record.message for record in caplog.records) == 1

    play(scenario)


def test_a_pattern_is_told_to_no_broker_that_has_no_room_for_it() -> None:
    """It would be left out, and nothing be read, without a word."""

    async def scenario(group: Coordinator) -> None:
        group.nodes.ranges["ConsumerGroupHeartbeat"] = (0, 0)
        async with group.member() as reader:
            reader.subscribe(pattern=SubscriptionPattern("t"))
            with pytest.raises(UnsupportedByBrokerError):
                await reader.poll(1000)
            assert group.heard == []
            reader.subscribe("t")
            await until(reader, lambda: reader.assignment() == PARTITIONS)

    play(scenario)


@pytest.mark.parametrize("error", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_a_topic_with_an_error_that_passes_holds_up_no_other_and_one_that_may_not_be_read_is_named(
    error: ErrorCode,
) -> None:
    async def scenario(group: Coordinator) -> None:
        group.nodes.topic_errors["u"] = error
        async with group.member() as reader:
            reader.subscribe("t", "u")
            if not error.retriable:
                with pytest.raises(BrokerError, match="topic 'u' cannot be used"):
                    await reader.poll(1000)
                reader.subscribe("t")
            await until(reader, lambda: reader.assignment() == PARTITIONS)

    play(scenario)
