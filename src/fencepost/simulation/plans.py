"""A run as a value: it is drawn from a seed, or made by hand, and carried out by `drawn_runs`.

Each drawn run has few kinds of trouble, and much of them, and not everybody is there: what needs two kinds at once,
often, is met by some seed, while a run that has a little of everything meets it never (swarm testing, Groce et al.
2012).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from fencepost.log.producer_state import WINDOW
from fencepost.simulation import small_limits
from fencepost.simulation.cast import Window, kind
from fencepost.simulation.group_load import POLLED, Group
from fencepost.simulation.inhabitants.applications import ApplicationsPlan
from fencepost.simulation.inhabitants.groups import AUDIT, KINDS, LEDGER, LOOPS, TRANSFORMERS, GroupsPlan, as_usual
from fencepost.simulation.record_shapes import Shape
from fencepost.simulation.script import CallFault, RequestFault, Script, drawn_shares
from fencepost.simulation.spark_trouble import Patience, TaskTrouble
from fencepost.simulation.spark_writes import DriverTrouble
from fencepost.simulation.spark_writes import Trouble as SparkTrouble
from fencepost.simulation.troubles import ENDS, HOUR_MS, Trouble
from fencepost.simulation.workload import Load

T = TypeVar("T")

_ANY_TIME: Final = 2**63 - 1
_SEQUENCES: Final = "largest sequence"
_FEW_RECORDS: Final = 100
"""Bytes of batches that have one record or two."""
_MIN_SESSION: Final = "group.min.session.timeout.ms"
_SOON_MS: Final = 1500
_TWO_PHASE: Final = "transaction.two.phase.commit.enable"
#: A transaction ends with its producer's connection.
ABORTED_BY_THE_WAY: Final = "transaction.abort.on.disconnect"
#: What the node and topics may be set to in few runs: one in seven has each.
_RARE: Final[Mapping[str, Sequence[object]]] = {
    "connections.max.idle.ms": (50, 300),
    "fetch.max.bytes": (1024,),
    "log.record.check.max.bytes": (0, 200),
    "queued.max.request.bytes": (1000, 5000),
    ABORTED_BY_THE_WAY: ("true",),
    f"{ABORTED_BY_THE_WAY}.grace.ms": (0, 50, 300),
}
_RARE_FOR_TOPICS: Final[Mapping[str, Sequence[str]]] = {
    "compression.type": ("gzip", "snappy", "lz4", "zstd", "uncompressed"),
    "delete.retention.ms": ("0", "50"),
    "index.interval.bytes": ("0", "200"),
    "message.timestamp.type": ("LogAppendTime",),
    "segment.ms": ("50", "300"),
}
#: What somebody may set them to, whatever else there is.
_CHANGES: Final[Mapping[str, Sequence[str]]] = {
    **_RARE_FOR_TOPICS,
    "min.cleanable.dirty.ratio": ("0.0", "0.5"),
    "min.compaction.lag.ms": ("0", "10"),
}
_POLICY: Final = "cleanup.policy"
_LARGEST: Final = "max.message.bytes"
#: Room for a batch of one record, compressed or not; several do not fit.
_FOR_ONE: Final = ("250", "400")
#: Of a request that is late, or comes when its sender has gone on.
_LATE: Final = (RequestFault.HELD_BACK, RequestFault.LATE)

#: Clients whose records have the time when they were made, however late they are sent again.
_OF_THEIR_CLOCK: Final = ("pipelined", "windowed")


class Circumstances(NamedTuple):
    """The circumstances of a run: what a seed decides before anything happens."""

    settings: Mapping[str, object] = {}
    log: Mapping[str, Any] = {}
    """Settings of every log that no user could set so low."""
    limits: Mapping[str, int] = {}
    slowest_sync: float = 0.002
    """Seconds that a sync takes at most."""
    level: int = 2
    """The finalized level of transaction.version at the beginning."""
    levels: Sequence[int] = (0, 1, 2)
    """Levels that transaction.version may have later."""
    producers: int = 0
    idempotent: int = 0
    pipelined: int = 0
    windowed: int = 0
    impatient: int = 0
    askers: int = 0
    readers: int = 0
    ordered: int = 0
    """Readers in commit order."""
    load: Load = Load()
    topic_settings: Mapping[str, str] = {}
    """Settings of the topics that producers write to."""
    changes: Mapping[str, Sequence[str]] = {}
    """Setting -> what somebody may set it to, of those topics."""
    groups: GroupsPlan | None = None
    applications: ApplicationsPlan | None = None
    troubles: Sequence[Trouble] = ()
    between: float = 0.1
    """Seconds from one trouble to the next, on average."""
    request_faults: Mapping[RequestFault, float] = {}
    apis: tuple[int, ...] | None = None
    call_faults: Mapping[CallFault, float] = {}
    largest_skew_ms: int = 0
    """Milliseconds that the clocks of clients are off, at most."""

    @property
    def clients(self) -> dict[str, Window]:
        """All clients of a drawn run by name, each working all the time."""
        counts = {
            "producer": self.producers,
            "single": self.idempotent,
            "pipelined": self.pipelined,
            "windowed": self.windowed,
            "impatient": self.impatient,
            "asker": self.askers,
            "reader": self.readers,
        }
        return {f"{kind}-{n}": Window() for kind, count in counts.items() for n in range(count)}


class Plan(NamedTuple):
    """A whole run as a value: the same plan gives the same history."""

    seed: int
    """Decides whatever is said nowhere else."""
    seconds: float
    """Seconds of virtual time for which the clients work."""
    circumstances: Circumstances
    clients: Mapping[str, Window]
    script: Script | None = None
    """None: it is drawn while the run goes on."""


def plan_of(seed: int, seconds: float, troubles: Iterable[Trouble] | None = None) -> Plan:
    """The plan of a seed: what is drawn before anything happens."""
    circumstances = draw(seed, troubles)
    return Plan(seed, seconds, circumstances, circumstances.clients)


def is_sound(plan: Plan) -> bool:
    """Whether `draw` might give such a plan; one that is not sound may fail without a fault of the code.

    Clients that send at the times of their own clock need one that is never too far ahead for the node.  A compacted
    topic takes no records without keys.  Groups are there as they are, or not at all.  They need a node that lets
    members with such short sessions in, and producers that neither bury them in records nor leave a transaction open
    for longer than they are waited for.
    """
    groups, load = plan.circumstances.groups, plan.circumstances.load
    if groups is not None and (
        not {as_usual(group) for group in (*groups.groups, *groups.transformers, *groups.loops)} <= KINDS
        or _MIN_SESSION not in plan.circumstances.settings
        or (plan.clients and (not load.pause or load.transaction_timeout_ms > _SOON_MS))
    ):
        return False
    timestamps = plan.circumstances.settings.get("log.message.timestamp.after.max.ms", HOUR_MS)
    if "compact" in plan.circumstances.topic_settings.get(_POLICY, "") and not plan.circumstances.load.shape.keys:
        return False
    return timestamps != HOUR_MS or not any(kind(name) in _OF_THEIR_CLOCK for name in plan.clients)


def draw(seed: int, troubles: Iterable[Trouble] | None = None) -> Circumstances:
    """The circumstances of a seed; with these kinds of trouble, where they are given."""
    chance = Random(f"{seed}/circumstances")
    with_groups, with_applications = chance.random() < 0.3, chance.random() < 0.3
    alone = not (with_groups or with_applications)
    askers = chance.choice((0, 0, 1, 3))
    drawn = _troubles(chance, seed, groups=with_groups, askers=askers) if troubles is None else list(troubles)
    level = chance.choice((2, 2, 2, 1) if with_applications else (2, 2, 2, 1, 0))
    call_faults = drawn_shares(chance, CallFault, (0.01, 0.05, 0.2)) if chance.random() < 0.4 else {}
    if level < 2 or Trouble.LEVEL_CHANGES in drawn:
        # Below level 2 a marker that is repeated late may end the next transaction: only bumped epochs prevent that.
        call_faults.pop(CallFault.REPEATED, None)
    request_faults = drawn_shares(chance, RequestFault, (0.01, 0.05, 0.1)) if chance.random() < 0.6 else {}
    is_late = Trouble.CLIENT_CUT_OFF in drawn or any(fault in request_faults for fault in _LATE)
    limits = small_limits.draw(chance)
    if is_late:
        # What is late would come when its sequences are in use again.
        limits.pop(_SEQUENCES, None)
    skew = chance.choice((0, 0, 50, 3000, HOUR_MS))
    settings = _settings(chance, drawn, skew, applications=with_applications) | _few_fetch_sessions(seed)
    settings |= _rare(Random(f"{seed}/rare settings"), _RARE)
    # Their records have the time when they were made, which a clock set back would have refused.
    any_time = settings["log.message.timestamp.after.max.ms"] != HOUR_MS
    log = _log(chance)
    given = Circumstances(
        settings=settings,
        log=log,
        limits=limits,
        slowest_sync=chance.choice((0.0005, 0.002, 0.002, 0.02, 0.2)),
        level=level,
        levels=(1, 2) if with_applications else (0, 1, 2),
        producers=chance.randint(1, 4) if alone else chance.choice((0, 1, 2)),
        idempotent=chance.choice((0, 1, 2)),
        pipelined=chance.choice((0, 0, 1, 2)) if any_time else 0,
        windowed=Random(f"{seed}/windowed").choice((0, 1, 2) if alone else (0, 0, 1)) if any_time else 0,
        askers=askers,
        readers=chance.choice((0, 1, 2)),
        load=_load(chance, seed, groups=with_groups, alone=alone),
        topic_settings=_topic_settings(chance, seed),
        groups=_groups(chance, seed, is_late=is_late) if with_groups else None,
        applications=draw_applications(chance, seed) if with_applications else None,
        troubles=drawn,
        between=chance.choice((0.03, 0.1, 0.5) if alone else (0.1, 0.3, 0.8)),
        request_faults=request_faults,
        apis=chance.choice((None, None, (0,), (22, 24, 25, 26, 28))),
        call_faults=call_faults,
        largest_skew_ms=skew,
    )
    given = _with_impatient_ones(given, Random(f"{seed}/impatient"), alone=alone)
    given = given._replace(limits=_told_apart(given))
    given = _shaped(given, Random(f"{seed}/records"), log["segment_bytes"])
    if Trouble.SETTINGS_CHANGE in given.troubles:
        given = given._replace(changes=_changes(given))
    return given._replace(ordered=0 if _loses(given) else Random(f"{seed}/commit order").choice((0, 0, 1, 2)))


def _with_impatient_ones(given: Circumstances, chance: Random, *, alone: bool) -> Circumstances:
    """The circumstances, perhaps with producers that are interrupted anywhere.

    They prepare transactions where `transaction.version` stays at 2, which that needs.
    """
    count = chance.choice((0, 1, 2) if alone else (0, 0, 1))
    prepares = given.level > 1 and Trouble.LEVEL_CHANGES not in given.troubles and chance.random() < 0.7
    two_phase = prepares and chance.random() < 0.6
    settings = {_TWO_PHASE: "true"} if count and two_phase else {}
    load = given.load._replace(prepares=prepares, two_phase=two_phase)
    return given._replace(impatient=count, load=load, settings={**given.settings, **settings})


def _loses(given: Circumstances) -> bool:
    """Whether records may be removed before everybody has read them: readers in commit order would begin anew."""
    return Trouble.RECORDS_DELETED in given.troubles or "retention.bytes" in given.topic_settings


def _told_apart(given: Circumstances) -> Mapping[str, int]:
    """The limits, with enough sequences that no batch is taken for one that the broker remembers.

    Seeds 219 and 2090.  With transaction.version 2 sequences begin anew in every transaction.
    """
    goes_on = given.idempotent or given.level < 2 or Trouble.LEVEL_CHANGES in given.troubles
    most = given.load.most_records if goes_on and given.load.batch_bytes > _FEW_RECORDS else 0
    most = max(most, POLLED[-1] if given.groups is not None else 0)
    if given.limits.get(_SEQUENCES, _ANY_TIME) >= WINDOW * most:
        return given.limits
    return {**given.limits, _SEQUENCES: small_limits.LIMITS[_SEQUENCES].drawn_from[-1]}


def _shaped(given: Circumstances, chance: Random, segment_bytes: int) -> Circumstances:
    """The circumstances, perhaps with compacted topics, and perhaps with large records.

    A batch that is larger than a segment is refused.
    """
    shape, topics = Shape(), dict(given.topic_settings)
    if chance.random() < (0.5 if given.groups is None else 0.3):
        shape = shape._replace(keys=chance.choice((1, 2, 10)))
        topics |= {
            _POLICY: "compact,delete" if Trouble.RECORDS_DELETED in given.troubles else "compact",
            "min.cleanable.dirty.ratio": chance.choice(("0.0", "0.0", "0.5")),
            "max.compaction.lag.ms": chance.choice(("20", "100", "500")),
            "min.compaction.lag.ms": chance.choice(("0", "0", "10")),
        }
        given = given._replace(settings={**given.settings, "log.cleaner.backoff.ms": chance.choice((20, 100))})
    if chance.random() < 0.25:
        largest = chance.choice([size for size in (1000, 2000, 10_000, 100_000) if size <= segment_bytes])
        shape = shape._replace(largest_batch=largest)
        topics[_LARGEST] = str(largest)
    return given._replace(topic_settings=topics, load=given.load._replace(shape=shape))


def _changes(given: Circumstances) -> dict[str, Sequence[str]]:
    """The topics' settings to change, with values: none removes a record still wanted, or refuses one for ever."""
    changes = dict(_CHANGES)
    if given.load.shape.keys:
        changes[_POLICY] = ("compact", "delete", "compact,delete")
    if Trouble.RECORDS_DELETED in given.troubles:
        changes["retention.bytes"] = ("3000", "30000")
    if not (given.pipelined or given.windowed or given.askers or given.load.shape.largest_batch):
        changes[_LARGEST] = _FOR_ONE
    return changes


def _troubles(chance: Random, seed: int, *, groups: bool, askers: int) -> list[Trouble]:
    later = (Trouble.READS_ARE_WRONG, Trouble.SETTINGS_CHANGE, Trouble.HANGING_LOOKED_FOR)
    drawn: list[Trouble] = [kind for kind in Trouble if kind not in later and chance.random() < 0.2]
    if Random(f"{seed}/wrong reads").random() < 0.2:
        drawn.append(Trouble.READS_ARE_WRONG)
    if Random(f"{seed}/settings change").random() < 0.3:
        drawn.append(Trouble.SETTINGS_CHANGE)
    if Random(f"{seed}/hanging").random() < 0.2:
        drawn.append(Trouble.HANGING_LOOKED_FOR)
    if not groups:
        drawn = [kind for kind in drawn if kind is not Trouble.TOPIC_GROWS]
    if not (groups or askers):
        drawn = [kind for kind in drawn if kind is not Trouble.TOPIC_MADE_ANEW]
    elif Random(f"{seed}/topics").random() < 0.3 and Trouble.TOPIC_MADE_ANEW not in drawn:
        drawn.append(Trouble.TOPIC_MADE_ANEW)
    if Random(f"{seed}/moves").random() < 0.1:
        drawn = [kind for kind in drawn if kind not in {*ENDS, Trouble.COORDINATOR_MOVES}] + [Trouble.COORDINATOR_MOVES]
    elif any(kind in ENDS for kind in drawn):
        drawn = [kind for kind in drawn if kind is not Trouble.COORDINATOR_MOVES]
    return drawn


def _settings(chance: Random, troubles: Sequence[Trouble], skew: int, *, applications: bool) -> dict[str, object]:
    # A slot that is forgotten while a batch is written would be claimed as one that was never used.
    expirations = [20_000, 604_800_000] if applications else [1000, 20_000, 604_800_000]
    if applications and Trouble.CLOCK_JUMPS in troubles:
        expirations = [604_800_000]
    return {
        "transaction.state.log.num.partitions": chance.choice((1, 3)),
        "offsets.topic.num.partitions": chance.choice((1, 3)),
        "group.initial.rebalance.delay.ms": 0,
        _MIN_SESSION: 50,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": chance.choice((20, 100, 1000)),
        "transaction.remove.expired.transaction.cleanup.interval.ms": chance.choice((200, 3_600_000)),
        "transactional.id.expiration.ms": chance.choice(expirations),
        "log.retention.check.interval.ms": chance.choice((100, 300_000)),
        "log.cleaner.backoff.ms": chance.choice((20, 15_000)),
        "log.record.check.max.records": chance.choice((0, 16, 2147483647)),
        "log.message.timestamp.after.max.ms": _ANY_TIME if skew else chance.choice((HOUR_MS, _ANY_TIME, _ANY_TIME)),
    }


def _topic_settings(chance: Random, seed: int) -> dict[str, str]:
    drawn = {"retention.bytes": chance.choice(("3000", "30000"))} if chance.random() < 0.3 else {}
    return drawn | _rare(Random(f"{seed}/rare settings of topics"), _RARE_FOR_TOPICS)


def _rare(chance: Random, settings: Mapping[str, Sequence[T]]) -> dict[str, T]:
    return {name: chance.choice(values) for name, values in settings.items() if chance.random() < 1 / 7}


def _few_fetch_sessions(seed: int) -> dict[str, object]:
    chance = Random(f"{seed}/fetch sessions")
    return {
        "max.incremental.fetch.session.cache.slots": chance.choice((0, 1, 2, 4, 1000)),
        "min.incremental.fetch.session.eviction.ms": chance.choice((0, 20, 200, 120_000)),
    }


def _log(chance: Random) -> dict[str, Any]:
    return {
        "segment_bytes": chance.choice((2000, 10_000, 1 << 20)),
        "checkpoint_bytes": chance.choice((400, 3000, 30_000, 1 << 20)),
        "index_interval_bytes": chance.choice((0, 200, 4096)),
        "file_delete_delay_ms": chance.choice((0, 50, 60_000)),
    }


def _load(chance: Random, seed: int, *, groups: bool, alone: bool) -> Load:
    in_flight = Random(f"{seed}/in flight")
    return Load(
        positions=chance.choice((0, 0.3, 0.8)),
        takeovers=chance.choice((0, 0.05, 0.2)),
        # Who reads committed records waits for what is left open.
        transaction_timeout_ms=chance.choice((300, _SOON_MS, _SOON_MS if groups else 60_000)),
        request_timeout_ms=chance.choice((400, 2000)),
        delivery_timeout_ms=chance.choice((700, 5000)),
        # Whoever reads is not to be buried in records.
        pause=0 if alone else chance.choice((0.02, 0.1)),
        # Several batches of a partition only where a batch is full.
        batch_bytes=in_flight.choice((1, 100, 256 * 1024)),
        max_in_flight=in_flight.choice((1, 2, 5, 5, 5)),
        most_records=in_flight.choice((6, 30)) if alone else 6,
        compression=Random(f"{seed}/compression").choice(("none", "none", "none", "gzip", "snappy", "lz4", "zstd")),
        together=Random(f"{seed}/together").choice((0, 0, 0.3, 1)),
        batches=Random(f"{seed}/batches").random() < 0.4,
    )


def _groups(chance: Random, seed: int, *, is_late: bool) -> GroupsPlan:
    groups = tuple(group for group in (LEDGER, AUDIT) if chance.random() < 0.6)
    transformers = (TRANSFORMERS,) if chance.random() < 0.6 or not groups else ()
    loops = (LOOPS,) if Random(f"{seed}/loops").random() < 0.5 else ()
    ways = Random(f"{seed}/ways to read")
    batches, by_pattern = ways.random() < 0.4, ways.random() < 0.3

    def there(*kind: Group) -> tuple[Group, ...]:
        return tuple(group._replace(batches=batches, by_pattern=by_pattern) for group in kind)

    return GroupsPlan(there(*groups), there(*transformers), there(*loops), is_late, batches)


def draw_applications(chance: Random, seed: int) -> ApplicationsPlan:
    """Draw applications; each kind of trouble comes often, seldom or not at all."""
    ahead = Random(f"{seed}/ahead")

    def often(most: float) -> float:
        return chance.choice((0, most / 4, most))

    drivers = DriverTrouble(
        kills=often(0.3),
        interruptions=often(0.3),
        stalls=often(0.2),
        successors=often(0.15),
        old_copies=often(0.15),
        intruders=often(0.1),
        commits=often(0.4),
        late_answers=often(0.3),
        reuse=often(1),
    )
    tasks = TaskTrouble(often(0.15), often(0.1), often(0.1), chance.choice((0, 0.5, 1)))
    return ApplicationsPlan(
        names=chance.choice((("a",), ("a", "b"))),
        trouble=SparkTrouble(drivers, tasks),
        patience=Patience(chance.choice((200, 400)), chance.choice((500, 3000)), chance.choice((300, 1500, 60_000))),
        other_producers=often(2),
        ahead=tuple(name for name in ("a", "b") if ahead.random() < 0.5),
        abrupt=chance.random() < 0.3,
    )
