"""What a node knows after it was stopped, or killed: transactions, producers, groups, offsets, features."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.broker.group_talk import alone, commit, committed_offset, find_group, heartbeat, leave, txn_commit
from tests.broker.wire import (
    SETTINGS,
    Client,
    add,
    batch,
    end,
    ended,
    fetch,
    init,
    init_answer,
    killed_copy,
    new_topic,
    produce,
    values,
    wait_until,
)

from fencepost.broker import running_broker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeGroupsRequest, DescribeTransactionsRequest, UpdateFeaturesRequest
from fencepost.protocol.messages.update_features import FeatureUpdateKey
from fencepost.protocol.types import ProducerIdAndEpoch


@contextmanager
def node(data: Path, **settings: object) -> Iterator[Client]:
    """A client of a node with this directory, which is stopped in the end."""
    given = {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
    with running_broker(data=data, settings=given) as broker:
        client = Client(broker)
        yield client
        client.close()


def write(client: Client, topic: str, pair: ProducerIdAndEpoch, value: str, sequence: int = 0) -> None:
    data = batch(value, pair=pair, sequence=sequence, transactional=True)
    assert produce(client, topic, data, "t").error_code == ErrorCode.NONE


@pytest.mark.promise("2014.coordinator-failure")
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_an_open_transaction_goes_on(tmp_path: Path, killed: bool, commits: bool) -> None:
    data = tmp_path / "one"
    with node(data) as client:
        topic, pair = new_topic(client), init(client, "t")
        find_group(client)
        write(client, topic, pair, "before")
        assert txn_commit(client, "t", pair, topic, 4) == [ErrorCode.NONE]
        if killed:
            data = killed_copy(client.broker, tmp_path / "two")
    with node(data) as client:
        assert (values(fetch(client, topic)), fetch(client, topic).last_stable_offset) == ([], 0)
        assert committed_offset(client, topic, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        write(client, topic, pair, "after", 1)
        following = ended(client, "t", pair, commit=commits)
        assert following == ProducerIdAndEpoch.of(pair.producer_id, pair.producer_epoch + 1)
        assert values(fetch(client, topic)) == (["before", "after"] if commits else [])
        assert committed_offset(client, topic, stable=True) == ((4 if commits else -1), ErrorCode.NONE)


@pytest.mark.promise("360.repeated-after-failover")
@pytest.mark.parametrize("killed", [False, True])
def test_retries_across_a_restart_are_answered_alike(tmp_path: Path, killed: bool) -> None:
    data = tmp_path / "one"
    with node(data) as client:
        topic, first = new_topic(client), init(client, "t")
        pair = init(client, "t", first)
        write(client, topic, pair, "x")
        following = ended(client, "t", pair)
        plain = [batch(f"{n}", pair=(900, 0), sequence=n) for n in range(5)]
        offsets = [produce(client, topic, each).base_offset for each in plain]
        if killed:
            data = killed_copy(client.broker, tmp_path / "two")
    with node(data) as client:
        again = end(client, "t", pair)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (ErrorCode.NONE, *following)
        assert end(client, "t", pair, commit=False).error_code == ErrorCode.INVALID_TXN_STATE
        answer = init_answer(client, "t", first)
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, following.producer_epoch)
        assert [produce(client, topic, each).base_offset for each in plain] == offsets, "all five are remembered"
        stale = produce(client, topic, batch("y", pair=pair, sequence=1, transactional=True), "t")
        assert stale.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.promise("2014.time-out")
def test_a_transaction_whose_time_is_up_when_the_node_comes_back_is_aborted(tmp_path: Path) -> None:
    with node(tmp_path) as client:
        topic, pair = new_topic(client), init(client, "t", timeout_ms=500)
        write(client, topic, pair, "late")
    with node(tmp_path) as client:
        wait_until("it is aborted", lambda: fetch(client, topic).last_stable_offset == 2)
        assert values(fetch(client, topic)) == []
        assert end(client, "t", pair).error_code == ErrorCode.TRANSACTION_ABORTABLE
        following = ended(client, "t", pair, commit=False)
        write(client, topic, following, "again")
        ended(client, "t", following)
        assert values(fetch(client, topic)) == ["again"]


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(4):
        with node(tmp_path) as client:
            seen += [init_answer(client, None).producer_id for _ in range(3)]
            seen.append(init(client, f"id{len(seen)}").producer_id)
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("killed", [False, True])
def test_groups_go_on(tmp_path: Path, killed: bool) -> None:
    data = tmp_path / "one"
    with node(data) as client:
        topic = new_topic(client)
        member, static = alone(client), alone(client, group="s", instance="i")
        assert commit(client, topic, 3, who=member) == [ErrorCode.NONE]
        if killed:
            data = killed_copy(client.broker, tmp_path / "two")
    with node(data) as client:
        assert heartbeat(client, member) == ErrorCode.NONE
        assert commit(client, topic, 4, who=member) == [ErrorCode.NONE]
        assert commit(client, topic, 5, who=member._replace(generation=9)) == [ErrorCode.ILLEGAL_GENERATION]
        assert committed_offset(client, topic) == (4, ErrorCode.NONE)
        assert heartbeat(client, static, group="s") == ErrorCode.NONE
        assert leave(client, static, group="s").members[0].error_code == ErrorCode.NONE
        assert alone(client, group="s", instance="i").generation > static.generation


def test_a_group_stays_though_its_only_offsets_were_aborted(tmp_path: Path) -> None:
    with node(tmp_path) as client:
        topic, pair = new_topic(client), init(client, "t")
        find_group(client)
        assert txn_commit(client, "t", pair, topic, 4) == [ErrorCode.NONE]
        ended(client, "t", pair, commit=False)
    with node(tmp_path) as client:
        found = client.ask(DescribeGroupsRequest(groups=["g"]), 6).groups[0]
        assert (found.error_code, found.group_state) == (ErrorCode.NONE, "Empty")


def test_a_finished_level_of_features_is_kept(tmp_path: Path) -> None:
    def level(client: Client, wanted: int, kind: int) -> None:
        change = FeatureUpdateKey(feature="transaction.version", max_version_level=wanted, upgrade_type=kind)
        assert client.ask(UpdateFeaturesRequest(feature_updates=[change])).error_code == ErrorCode.NONE

    for wanted, kind in ((1, 2), (0, 3), (2, 1)):
        with node(tmp_path) as client:
            epoch = client.broker.node.features.epoch
            level(client, wanted, kind)
        with node(tmp_path) as client:
            assert client.broker.node.features.transaction_version() == wanted
            assert client.broker.node.features.epoch == epoch + 1


def test_an_old_transaction_ends_by_the_old_protocol_after_an_upgrade(tmp_path: Path) -> None:
    """A level that rises while transactions are open; and the next transaction has an epoch of its own."""
    with node(tmp_path) as client:
        low = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
        assert client.ask(UpdateFeaturesRequest(feature_updates=[low])).error_code == ErrorCode.NONE
        topic, pair = new_topic(client), init(client, "t")
        assert add(client, "t", pair, topic) == ErrorCode.NONE
        data = batch("old", pair=pair, sequence=0, transactional=True)
        assert produce(client, topic, data, "t", version=11).error_code == ErrorCode.NONE
    with node(tmp_path) as client:
        high = FeatureUpdateKey(feature="transaction.version", max_version_level=2, upgrade_type=1)
        assert client.ask(UpdateFeaturesRequest(feature_updates=[high])).error_code == ErrorCode.NONE
        assert end(client, "t", pair, version=4).error_code == ErrorCode.NONE
        following = init(client, "t", pair)
        assert following.producer_epoch == pair.producer_epoch + 1
        write(client, topic, following, "new")
        ended(client, "t", following)
        assert values(fetch(client, topic)) == ["old", "new"]


@pytest.mark.parametrize("bumped", [False, True], ids=["once", "twice"])
def test_a_process_that_never_initialized_commits_by_the_old_protocol_what_another_one_wrote(
    tmp_path: Path, bumped: bool
) -> None:
    """As Apache Flink does, by a pair from its checkpoint, not knowing whether that is done already."""
    with node(tmp_path / "one") as client:
        topic, pair = new_topic(client), init(client, "t")
        write(client, topic, pair, "first")
        if bumped:
            pair = ended(client, "t", pair)
            write(client, topic, pair, "second")
        data = killed_copy(client.broker, tmp_path / "two")
    with node(data) as client:
        for _ in range(2):
            assert end(client, "t", pair, version=4).error_code == ErrorCode.NONE
        assert values(fetch(client, topic)) == (["first", "second"] if bumped else ["first"])
        following = init(client, "t")
        assert following.producer_epoch == pair.producer_epoch + 1, "an end by version 4 bumps nothing"
        write(client, topic, following, "by a new one")
        ended(client, "t", following)
        # Any other code has Flink start anew, to commit the same once more.
        for late in (pair, following):
            assert end(client, "t", late, version=4).error_code == ErrorCode.PRODUCER_FENCED


def test_what_a_partition_has_and_the_coordinator_does_not_know_is_aborted_at_the_start(tmp_path: Path) -> None:
    """A write that was let in unverified hangs; the next start ends it."""
    with node(tmp_path, transaction_partition_verification_enable="false") as client:
        topic, pair = new_topic(client), init(client, "t")
        stray = batch("stray", pair=(pair.producer_id + 500, 0), sequence=0, transactional=True)
        assert produce(client, topic, stray, "t", version=11).error_code == ErrorCode.NONE
        assert fetch(client, topic).last_stable_offset == 0
    with node(tmp_path) as client:
        wait_until("it is ended", lambda: fetch(client, topic).last_stable_offset == 2)
        assert values(fetch(client, topic)) == []
        state = client.ask(DescribeTransactionsRequest(transactional_ids=["t"])).transaction_states[0]
        assert state.transaction_state == "Empty"
