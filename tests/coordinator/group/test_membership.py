"""Joining, syncing, staying and leaving, with everybody's timers, on virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tests.coordinator.group.group_doubles import A, World, group_of, now, settled, virtual

from fencepost.coordinator.group.shards import MOST_APPENDED
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import JoinGroupResponse

# Joining


@virtual
async def test_an_id_that_was_given_to_a_dynamic_member_is_no_static_members() -> None:
    """There would be two members of one instance.  Apache Kafka fails over it as well."""
    world = World()
    static = await world.join(instance="i")
    pending = await world.join()
    for instance in ("i", "j"):
        refused = await world.join(pending.member_id, instance=instance)
        assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert list(group_of(world).members) == [static.member_id]


@virtual
async def test_a_new_member_is_given_its_id_first() -> None:
    world = World()
    given = await world.join()
    assert (given.error_code, given.members) == (ErrorCode.MEMBER_ID_REQUIRED, [])
    assert given.member_id.startswith("client-")
    joined = await world.join(given.member_id)
    assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.NONE, 1, given.member_id)
    assert [(each.member_id, bytes(each.metadata)) for each in joined.members] == [(given.member_id, b"topics")]


@virtual
async def test_older_clients_join_at_once() -> None:
    joined = await World().join(version=3)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)


@virtual
@pytest.mark.parametrize(("version", "rebalance_ms"), [(0, 10_000), (1, 30_000)])
async def test_the_oldest_clients_have_one_time_out_for_both(version: int, rebalance_ms: int) -> None:
    world = World()
    await world.join(session_ms=10_000, rebalance_ms=30_000, version=version)
    (member,) = group_of(world).members.values()
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, rebalance_ms)


@virtual
async def test_an_id_that_nobody_gave_is_refused() -> None:
    world = World()
    assert (await world.join("x")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.state() == "GROUP_ID_NOT_FOUND", "nothing is kept of it"
    await world.stable()
    assert (await world.join("x")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("session_ms", "fits"), [(5999, False), (6000, True), (60_000, True), (60_001, False)])
@virtual
async def test_the_session_must_be_within_bounds(session_ms: int, fits: bool) -> None:
    answer = await World(max_session_timeout_ms=60_000).join(session_ms=session_ms)
    expected = ErrorCode.MEMBER_ID_REQUIRED if fits else ErrorCode.INVALID_SESSION_TIMEOUT
    assert answer.error_code == expected


@pytest.mark.parametrize(("more", "fits"), [(99, True), (100, False)])
@virtual
async def test_nobody_has_very_many_protocols(more: int, fits: bool) -> None:
    protocols = {"range": b"", **{f"p{number}": b"" for number in range(more)}}
    answer = await World().join(protocols=protocols)
    assert answer.error_code == (ErrorCode.MEMBER_ID_REQUIRED if fits else ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


@virtual
async def test_whoever_cannot_do_what_the_others_do_is_refused() -> None:
    world = World()
    await world.stable()
    for wrong in ({"protocols": {"other": b""}}, {"protocol_type": "connect"}):
        refused = await world.join(**wrong)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.state() == "Stable"


@virtual
async def test_a_group_has_so_many_members_and_no_more() -> None:
    world = World(max_size=2)
    await world.stable(2)
    assert (await world.join()).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.state() == "Stable"


@virtual
async def test_an_id_that_was_given_out_takes_a_place() -> None:
    world = World(max_size=2)
    given = [await world.join() for _ in range(3)]
    expected = [ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert [each.error_code for each in given] == expected
    joined = await asyncio.gather(*(world.join(each.member_id) for each in given[:2]))
    assert {each.error_code for each in joined} == {ErrorCode.NONE}


@virtual
async def test_the_first_generation_waits_for_those_who_come_soon() -> None:
    world = World(initial_rebalance_delay_ms=3000)
    first = asyncio.create_task(world.join_as_new())
    await asyncio.sleep(2)
    second = asyncio.create_task(world.join_as_new())
    await asyncio.sleep(2)
    third = asyncio.create_task(world.join_as_new())
    joined = await asyncio.gather(first, second, third)
    assert now() == pytest.approx(9), "three seconds, again and again, while somebody came"
    assert {answer.generation_id for answer in joined} == {1}
    assert sorted(len(answer.members) for answer in joined) == [0, 0, 3]


@virtual
async def test_the_first_generation_waits_no_longer_than_a_rebalance_may_take() -> None:
    world = World(initial_rebalance_delay_ms=3000)

    async def come_later(seconds: int) -> JoinGroupResponse:
        await asyncio.sleep(seconds)
        return await world.join_as_new(rebalance_ms=7000)

    tasks = [asyncio.create_task(come_later(seconds)) for seconds in range(0, 7, 2)]
    await asyncio.gather(*tasks)
    assert now() == pytest.approx(7)


@virtual
async def test_a_promised_id_holds_the_others_up_for_a_session_at_most() -> None:
    world = World()
    _, (leader,) = await world.stable()
    await world.join(session_ms=8000)  # and never comes back with its id
    asyncio.get_running_loop().call_later(5, lambda: world.heartbeat(leader, 1))
    rejoined = await world.join(leader, protocols={"range": b"other topics"})
    assert now() == pytest.approx(8)
    assert rejoined.generation_id == 2


@virtual
async def test_a_client_that_went_away_while_it_waited_is_out_after_its_session() -> None:
    world = World(initial_rebalance_delay_ms=3000)
    gone = asyncio.create_task(world.join_as_new())
    stays = asyncio.create_task(world.join_as_new(rebalance_ms=60_000))
    await settled()
    gone.cancel()
    joined = await stays
    assert len(group_of(world).members) == 2, "nobody knows yet"
    syncing = asyncio.create_task(world.sync(joined.member_id, 1, {}))
    await asyncio.sleep(9)
    world.heartbeat(joined.member_id, 1)
    await asyncio.sleep(2)
    assert list(group_of(world).members) == [joined.member_id]
    syncing.cancel()


# Assigning


@virtual
async def test_everybody_gets_what_the_leader_says() -> None:
    world = World()
    generation, members = await world.stable(3)
    assert world.state() == "Stable"
    for number, member in enumerate(members):
        again = await world.sync(member, generation)
        assert (again.error_code, bytes(again.assignment)) == (ErrorCode.NONE, b"%d" % number)


@virtual
async def test_a_sync_is_checked() -> None:
    world = World()
    generation, (member,) = await world.stable()
    assert (await world.sync("x", generation)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await world.sync(member, generation, group="h")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await world.sync(member, generation - 1)).error_code == ErrorCode.ILLEGAL_GENERATION
    wrong = await world.sync(member, generation, protocol="sticky")
    assert wrong.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await world.sync(member, generation, protocol="range")).error_code == ErrorCode.NONE


@virtual
async def test_somebody_new_makes_everybody_join_again() -> None:
    world = World()
    generation, (old,) = await world.stable()
    new = asyncio.create_task(world.join_as_new())
    await settled()
    assert world.heartbeat(old, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await world.sync(old, generation)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = await world.join(old)
    assert (again.generation_id, again.leader) == (generation + 1, old)
    assert sorted(each.member_id for each in again.members) == sorted([old, (await new).member_id])
    assert world.heartbeat(old, generation) == ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat(old, generation + 1) == ErrorCode.NONE


@virtual
async def test_who_waits_for_an_assignment_hears_of_the_next_rebalance() -> None:
    world = World()
    _, members = await world.stable(2)
    answers = await asyncio.gather(*(world.join(member, protocols={"range": b"more"}) for member in members))
    follower = next(member for member in members if member != answers[0].leader)
    waiting = asyncio.create_task(world.sync(follower, answers[0].generation_id))
    await settled()
    assert not waiting.done()
    newcomer = asyncio.create_task(world.join_as_new())
    assert (await waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    newcomer.cancel()


@virtual
async def test_who_does_not_join_again_in_time_is_out() -> None:
    world = World()
    _, members = await world.stable(2, session_ms=60_000)
    leader, silent = members
    answer = await world.join(leader, protocols={"range": b"other topics"}, session_ms=60_000)
    assert now() == pytest.approx(20), "the time for a rebalance"
    assert list(group_of(world).members) == [leader]
    assert world.heartbeat(silent, answer.generation_id) == ErrorCode.UNKNOWN_MEMBER_ID


@virtual
async def test_a_leader_that_never_assigns_is_replaced() -> None:
    world = World()
    generation, members = await world.stable(2, session_ms=60_000)
    answers = await asyncio.gather(
        *(world.join(member, protocols={"range": b"more"}, session_ms=60_000) for member in members)
    )
    generation, leader = answers[0].generation_id, answers[0].leader
    follower = next(member for member in members if member != leader)
    told = await world.sync(follower, generation)
    assert told.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert now() == pytest.approx(20)
    assert list(group_of(world).members) == [follower]
    assert group_of(world).leader_id == follower


@virtual
@pytest.mark.parametrize("asks", [True, False])
async def test_who_never_asks_for_its_assignment_is_out_though_it_says_that_it_is_alive(asks: bool) -> None:
    """Kafka's expirePendingSync: its partitions would be nobody's for ever."""
    world = World()
    _, members = await world.stable(2, session_ms=60_000)
    answers = await asyncio.gather(
        *(world.join(member, protocols={"range": b"more"}, session_ms=60_000) for member in members)
    )
    generation, leader = answers[0].generation_id, answers[0].leader
    (silent,) = (member for member in members if member != leader)
    assert (await world.sync(leader, generation, {silent: b"its"})).error_code == ErrorCode.NONE
    for second in range(30):
        if asks and second == 19:
            assert bytes((await world.sync(silent, generation)).assignment) == b"its"
        late = second >= 20 and not asks
        expected = [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID] if late else [ErrorCode.NONE] * 2
        assert [world.heartbeat(each, generation) for each in (leader, silent)] == expected
        await asyncio.sleep(1)


@virtual
async def test_who_waits_for_its_assignment_need_not_say_that_it_is_alive() -> None:
    """As in Apache Kafka: the leader may take longer than a session."""
    world = World()
    _, members = await world.stable(2, session_ms=10_000)
    answers = await asyncio.gather(*(world.join(member, protocols={"range": b"more"}) for member in members))
    generation, leader = answers[0].generation_id, answers[0].leader
    (follower,) = (member for member in members if member != leader)
    waiting = asyncio.create_task(world.sync(follower, generation))
    await asyncio.sleep(9)
    world.heartbeat(leader, generation)
    await asyncio.sleep(9)
    assert (await world.sync(leader, generation, {follower: b"mine"})).error_code == ErrorCode.NONE
    answer = await waiting
    assert (answer.error_code, bytes(answer.assignment)) == (ErrorCode.NONE, b"mine")
    await asyncio.sleep(9)
    assert world.heartbeat(follower, generation) == ErrorCode.NONE, "its session begins with the answer"
    await asyncio.sleep(10.1)
    assert world.heartbeat(follower, generation) == ErrorCode.UNKNOWN_MEMBER_ID


@virtual
async def test_who_waited_is_told_which_record_its_answer_depends_on() -> None:
    world = World()
    generation, (leader, follower) = await world.stable(2)
    joins = [asyncio.create_task(world.ask_to_join(each, protocols={"range": b"more"})) for each in (follower, leader)]
    joined = [await each for each in joins]
    assert {each.lsn for each in joined} == {world.lsn}
    waiting = asyncio.create_task(world.ask_to_sync(follower, generation + 1))
    await settled()
    before = world.lsn
    leading = await world.ask_to_sync(leader, generation + 1, {follower: b"mine"})
    assert leading.lsn == (await waiting).lsn == world.lsn > before
    assert world.coordinator.heartbeat("g", follower, None, generation + 1) == (ErrorCode.NONE, world.lsn)


@virtual
async def test_an_assignment_that_could_not_be_stored_is_not_given_out() -> None:
    world = World()
    joined = await world.join_as_new()
    world.journal.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    refused = await world.sync(joined.member_id, 1, {joined.member_id: b"lost"})
    assert (refused.error_code, bytes(refused.assignment)) == (ErrorCode.NOT_COORDINATOR, b"")
    world.journal.refuse = None
    again = await world.join(joined.member_id)
    assert again.generation_id == 2
    assert (await world.sync(joined.member_id, 2, {joined.member_id: b"kept"})).error_code == ErrorCode.NONE


@virtual
async def test_the_log_has_one_short_line_for_a_group_that_could_not_be_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a client calls its group may be anything, and on a full disk it is said again and again."""
    world, group = World(), "g\n2026-01-01 CRITICAL the node stops: " + "x" * 30_000
    joined = await world.join_as_new(group=group)
    world.journal.refuse = ErrorCode.KAFKA_STORAGE_ERROR
    await world.sync(joined.member_id, 1, {joined.member_id: b"lost"}, group=group)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "could not be written group_id='g\\n2026" in said and len(said.splitlines()) == 1 and len(said) < 300


@virtual
@pytest.mark.parametrize("more", [0, 1])
async def test_what_a_group_stores_is_bounded(more: int) -> None:
    """It is encoded and appended in one step: 90 MB took half a second."""
    world = World()
    joined = await world.join_as_new(protocols={"range": b"m" * (MOST_APPENDED // 2)})
    before = world.journal.end
    assignment = b"a" * (MOST_APPENDED // 2 - 200 + more * 201)
    answer = await world.sync(joined.member_id, 1, {joined.member_id: assignment})
    assert answer.error_code == (ErrorCode.UNKNOWN_SERVER_ERROR if more else ErrorCode.NONE)
    assert world.journal.end == before + (not more)
    small = await world.join(joined.member_id, protocols={"range": b""})
    assert (await world.sync(joined.member_id, small.generation_id, {joined.member_id: b""})).error_code == 0


# Staying and leaving


@virtual
async def test_a_member_stays_while_it_beats() -> None:
    world = World()
    generation, (member,) = await world.stable()
    for _ in range(5):
        await asyncio.sleep(9)
        assert world.heartbeat(member, generation) == ErrorCode.NONE
    await asyncio.sleep(10.1)
    assert world.heartbeat(member, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.state() == "Empty"


@virtual
async def test_a_commit_is_a_sign_of_life_too() -> None:
    world = World()
    generation, (member,) = await world.stable()
    await asyncio.sleep(9)
    assert world.commit({A: 1}, who=(member, None, generation)).errors == {A: ErrorCode.NONE}
    await asyncio.sleep(9)
    assert world.heartbeat(member, generation) == ErrorCode.NONE


@virtual
async def test_a_follower_that_joins_again_as_it_was_disturbs_nobody() -> None:
    world = World()
    generation, (leader, follower) = await world.stable(2)
    again = await world.join(follower)
    assert (again.generation_id, again.members, world.state()) == (generation, [], "Stable")
    assert world.heartbeat(leader, generation) == ErrorCode.NONE
    leading = asyncio.create_task(world.join(leader))
    await settled()
    assert world.state() == "PreparingRebalance", "the leader asks for a new assignment by joining again"
    assert (await world.join(follower)).generation_id == (await leading).generation_id == generation + 1


@virtual
async def test_a_repeated_join_is_answered_alike_until_the_assignment_is_there() -> None:
    world = World()
    first = await world.join_as_new()
    again = await world.join(first.member_id)
    assert (again.generation_id, again.leader, len(again.members)) == (1, first.member_id, 1)
    assert world.state() == "CompletingRebalance"


@virtual
async def test_a_second_join_of_a_member_that_waits_takes_over() -> None:
    world = World(initial_rebalance_delay_ms=3000)
    member = (await world.join()).member_id
    first = asyncio.create_task(world.join(member))
    await settled()
    second = asyncio.create_task(world.join(member))
    assert (await first).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await second).generation_id == 1


@virtual
async def test_a_group_that_began_is_known_after_a_restart() -> None:
    world = World()
    await world.join()
    world.coordinator.close()
    world.restart()
    assert world.state() == "Empty"


@virtual
@pytest.mark.parametrize("taken", [True, False])
async def test_a_member_whose_commits_are_taken_is_alive_and_one_whose_are_refused_is_not(taken: bool) -> None:
    world = World()
    generation, (member,) = await world.stable(session_ms=10_000)
    for _ in range(5):
        await asyncio.sleep(4)
        told = world.commit({A: 1}, who=(member, None, generation if taken else generation + 1)).errors[A]
        assert (told == ErrorCode.NONE) is taken
    assert world.state() == ("Stable" if taken else "Empty")
