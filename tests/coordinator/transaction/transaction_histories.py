"""Random histories: a coordinator that fails over after every step answers as one that never does."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.coordinator.transaction.transaction_doubles import A, B, C, World, transaction

from fencepost.coordinator.transaction.state import State
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import TopicPartition

partitions = st.lists(st.sampled_from([A, B, C]), max_size=3)
Known = tuple[int, int]


class TwoCoordinators(RuleBasedStateMachine):
    """`steady` keeps everything in memory; `moved` has only what is in its journal."""

    def __init__(self) -> None:
        super().__init__()
        self.steady, self.moved = World(two_phase_commit=True), World(two_phase_commit=True)
        self.worlds = (self.steady, self.moved)
        self.pairs: list[Known] = [(-1, -1)]
        #: The pair of the running instance, and those that another instance fenced.
        self.fenced: list[Known] = []
        self.epochs: dict[int, int] = {}

    @initialize(
        epoch=st.sampled_from([0, 32_760, 32_764, 32_765, 32_766]),
        state=st.sampled_from([State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT]),
        level=st.sampled_from([0, 1, 2]),
    )
    def begin(self, epoch: int, state: State, level: int) -> None:
        for world in self.worlds:
            world.level = level
            world.put(
                transaction(
                    state, producer_id=500, producer_epoch=epoch, previous_producer_id=500, instance_epoch=epoch
                )
            )
            world.release()
        self.pairs.append((500, epoch))

    def both(self, name: str, *arguments: object, **more: object) -> tuple[int, int, int]:
        """Ask both; they must say the same.  Returns (error, producer id, epoch)."""
        answers = [getattr(world, name)(*arguments, **more) for world in self.worlds]
        plain = [
            (int(answer), -1, -1) if isinstance(answer, ErrorCode) else (int(answer[0]), answer[1], answer[2])
            for answer in answers
        ]
        assert plain[0] == plain[1], (name, arguments, plain)
        assert plain[0][0] != ErrorCode.UNKNOWN_SERVER_ERROR
        self.move()
        return plain[0]

    def move(self) -> None:
        """The markers of the steady one get the same chance as those of the one that fails over."""
        self.moved.fail_over()
        self.steady.coordinator.retry_markers()

    def give(self, producer_id: int, epoch: int) -> None:
        assert 0 <= epoch <= 32_766, "no client is given another epoch"
        assert epoch >= self.epochs.get(producer_id, 0), "epochs only grow"
        self.epochs[producer_id] = epoch
        if (producer_id, epoch) not in self.pairs:
            self.pairs.append((producer_id, epoch))
        assert (producer_id, epoch) not in self.fenced, "a fenced pair is never given again"

    def pick(self, data: st.DataObject, *, none: bool = False) -> Known:
        recent = self.pairs[-6:] if none else [pair for pair in self.pairs[-6:] if pair[0] >= 0]
        producer_id, epoch = data.draw(st.sampled_from(recent))
        if producer_id < 0:
            return producer_id, epoch
        return producer_id, max(epoch + data.draw(st.sampled_from([0] * 8 + [-1, 1])), 0)

    @rule(data=st.data(), again=st.booleans())
    def claim(self, data: st.DataObject, again: bool) -> None:
        pair = self.pick(data, none=True)
        error, producer_id, epoch = self.both("init", pair=pair)
        if error:
            assert error in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED)
            return
        self.give(producer_id, epoch)
        if pair[0] < 0:
            self.fenced += [known for known in self.pairs if known != (producer_id, epoch) and known not in self.fenced]
        else:
            assert pair not in self.fenced, "a fenced pair claims nothing"
            if again:
                assert self.both("init", pair=pair)[1:] == (producer_id, epoch) or pair == (producer_id, epoch), (
                    "a retry is answered alike"
                )

    @rule(data=st.data(), which=partitions, version=st.sampled_from([0, 2, 2, 2]))
    def add(self, data: st.DataObject, which: list[TopicPartition], version: int) -> None:
        pair = self.pick(data)
        error, _, _ = self.both("add", pair, *which, version=version)
        assert error or pair not in self.fenced, "a fenced pair adds nothing"

    @rule(data=st.data(), commit=st.booleans(), version=st.sampled_from([4, 5, 5, 5]))
    def end(self, data: st.DataObject, commit: bool, version: int) -> None:
        pair = self.pick(data)
        before = len(self.steady.markers.written)
        error, producer_id, epoch = self.both("end", pair, commit, version)
        marked = self.steady.markers.written[before:]
        assert all(marker.commit == commit for marker, _ in marked)
        if error:
            assert not marked
            return
        assert pair not in self.fenced, "a fenced pair ends nothing"
        if version >= 5:  # older answers carry no pair
            self.give(producer_id, epoch)
        if self.steady.state().startswith("Prepare"):
            return
        assert self.both("end", pair, commit, version) == (0, producer_id, epoch) or (version >= 5 and not commit)

    @rule(milliseconds=st.sampled_from([0, 1000, 60_001]))
    def wait(self, milliseconds: int) -> None:
        for world in self.worlds:
            world.tick(world.clock.advance(milliseconds))
        self.move()

    @rule(which=partitions)
    def leaders_go_away(self, which: list[TopicPartition]) -> None:
        # All are back in between: after a failover those are asked again that had answered, and the two would
        # rightly differ if it were their turn to be away.
        for world in self.worlds:
            world.release()
            world.markers.answers = dict.fromkeys(which, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @rule()
    def leaders_come_back(self) -> None:
        for world in self.worlds:
            world.release()

    @rule(level=st.sampled_from([0, 1, 2]))
    def change_level(self, level: int) -> None:
        for world in self.worlds:
            world.level = level

    @invariant()
    def they_are_alike(self) -> None:
        steady, moved = (world.coordinator.describe("t") for world in self.worlds)
        assert steady[:7] == moved[:7]

    @invariant()
    def a_transaction_has_one_outcome(self) -> None:
        outcomes: dict[tuple[Known, TopicPartition], list[bool]] = {}
        for marker, partition in self.steady.markers.written:
            if marker.transaction_version >= 2:
                outcomes.setdefault((marker[:2], partition), []).append(marker.commit)
        for seen in outcomes.values():
            assert len(set(seen)) == 1, "one transaction was both committed and aborted"
