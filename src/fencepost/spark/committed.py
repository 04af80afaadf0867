"""Whether a micro-batch was committed before, from the progress record: a table and pure functions.

Batch numbers alone do not tell.  A checkpoint that is an older copy, or lost its last files, counts on from an older
number with other rows under it; a cluster that was put back from an older copy has forgotten the newest batches.  So
the positions of the sources are compared as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from fencepost.spark.positions import BEGAN, CLUSTER, EPOCHS, OF_THE_END, positions_in_topics, without
from fencepost.spark.progress import TOPIC, Progress


class Number(Enum):
    """How the number of a micro-batch stands to that of the last committed one."""

    OLDER = "an older number"
    SAME = "the same number"
    LATER = "a later number"


class End(Enum):
    """How a start or an end of a micro-batch, in positions of its sources, stands to the last committed end."""

    EQUAL = "at the same positions"
    WITHIN = "nowhere beyond them"
    BEYOND = "beyond them in some place, or it cannot be told"
    UNKNOWN = "no positions are given"


class Verdict(Enum):
    """The things to do with a micro-batch: write it, skip it, or refuse it for one of two reasons."""

    WRITE = "it is a new one"
    SKIP = "it was committed before"
    REFUSE = "it is not the batch of that number which was committed"
    MISSES = "rows before it were not committed"


#: number and end of a micro-batch -> what to do with it
VERDICTS: Final[Mapping[tuple[Number, End], Verdict]] = {
    (Number.OLDER, End.EQUAL): Verdict.SKIP,
    (Number.OLDER, End.WITHIN): Verdict.SKIP,
    (Number.OLDER, End.BEYOND): Verdict.REFUSE,
    (Number.OLDER, End.UNKNOWN): Verdict.SKIP,
    (Number.SAME, End.EQUAL): Verdict.SKIP,
    (Number.SAME, End.WITHIN): Verdict.REFUSE,
    (Number.SAME, End.BEYOND): Verdict.REFUSE,
    (Number.SAME, End.UNKNOWN): Verdict.SKIP,
}

#: start of a micro-batch with a later number, beside the end of the last committed one -> what to do with it
FOLLOWING: Final[Mapping[End, Verdict]] = {
    End.EQUAL: Verdict.WRITE,
    End.WITHIN: Verdict.REFUSE,
    End.BEYOND: Verdict.MISSES,
    End.UNKNOWN: Verdict.WRITE,
}


class Judgement(NamedTuple):
    """The verdict on a micro-batch; `reason`: the message if it is refused, else empty."""

    verdict: Verdict
    reason: str = ""


def judge(
    application_id: str,
    last: Progress | None,
    batch: Progress,
    new_query: bool,
    resume: bool = False,
    accept_gap: bool = False,
) -> Judgement:
    """The judgement on `batch`, the last committed one being `last` (None: there is none).

    `new_query`: another query than that of the last batch is no mistake.  `resume`: neither if it began where the last
    batch ended.  `accept_gap`: rows before it that were not committed are to be left out.
    """
    if new_query and last is not None and batch.query_id in last.earlier_runs:
        return Judgement(Verdict.SKIP)
    if last is None:
        if not any(start is not None for start in batch.source_starts) or accept_gap:
            return Judgement(Verdict.WRITE)
        return Judgement(
            Verdict.MISSES, _missing(application_id, batch, "no batch was committed", _no_record(application_id))
        )
    if new_query and last.query_id != batch.query_id:
        if last.source_offsets and not batch.source_offsets:
            return Judgement(
                Verdict.REFUSE,
                f"the application id {application_id!r} belongs to a stream, which could not go on after a run under "
                "it. Nothing was written. Choose another application_id for the job",
            )
        return Judgement(Verdict.WRITE)
    if last.query_id != batch.query_id:
        return _of_another_query(application_id, last, batch, resume)
    number = number_of(batch.batch_id, last.batch_id)
    if number is Number.LATER:
        return _later(application_id, last, batch, accept_gap)
    verdict = VERDICTS[number, end_of(batch.source_offsets, last.source_offsets)]
    begins_elsewhere = number is Number.SAME and batch.started != last.started and bool(batch.started and last.started)
    reads_others = batch.files != last.files and bool(batch.files and last.files)
    if verdict is Verdict.SKIP and not begins_elsewhere and not reads_others:
        if number is Number.SAME and batch.topics != last.topics and batch.topics and last.topics:
            return Judgement(Verdict.REFUSE, second_write(application_id, batch.batch_id))
        return Judgement(verdict)
    if verdict is Verdict.SKIP and reads_others:
        differs = f"reads other files than batch {last.batch_id}, the last one that was committed"
    elif verdict is Verdict.SKIP:
        differs = f"begins at {_text(batch.source_starts)}, but the one that was committed under this number did not"
    else:
        differs = (
            f"would end at {_text(batch.source_offsets)}, but batch {last.batch_id}, which was committed, ended at "
            f"{_text(last.source_offsets)}"
        )
    return Judgement(
        Verdict.REFUSE,
        f"batch {batch.batch_id} of application {application_id!r} {differs}: this checkpoint is an older copy, or its "
        f"last files were lost. Nothing was written. Put the newest checkpoint back, or "
        + _way_on(application_id, batch.source_offsets, last.source_offsets),
    )


def second_write(application_id: str, batch_id: int) -> str:
    """The message for a second write of a batch, with other rows, which else would be skipped as a repetition."""
    return (
        f"batch {batch_id} of application {application_id!r} was committed by another write, and rows that only this "
        "one has are not: a micro-batch is one write. Nothing was written. Give all its rows at once, with a column "
        "topic. This batch is committed as it was written first: run the query with that write alone until it is "
        "behind it, and write rows that only this one has with another application_id"
    )


def _missing(application_id: str, batch: Progress, committed: str, beware: str = "") -> str:
    return (
        f"batch {batch.batch_id} of application {application_id!r} begins at {_text(batch.source_starts)}, but on this "
        f"cluster {committed}: the rows in between are missing. The cluster was put back from an older copy, or is "
        f"another one, or earlier batches of this checkpoint were written elsewhere. Nothing was written. To have the "
        f"missing rows, {_way_on(application_id, batch.source_starts)}. To go on without them, give the sink "
        f"accept_gap=True for one run{beware}"
    )


def _no_record(application_id: str) -> str:
    return (
        f". Where only the topic {TOPIC!r} was deleted no row is missing, and that lets the query go on as well; but "
        "it writes this batch twice if it was committed before, without Spark knowing of it, and no position of group "
        f"{application_id!r} tells so"
    )


def _way_on(application_id: str, *source_offsets: Sequence[Any]) -> str:
    """The advice at the end of a refusal; another one if a source in `source_offsets` reads no topic but files."""
    if any(positions_in_topics(each) is None for ends in source_offsets for each in ends):
        return (
            "begin anew with a new checkpoint and a new application_id, and give a source that reads no topic, as one "
            "of files, only what has no rows in the output yet: it cannot be told where to begin"
        )
    return (
        "go on from there with a new checkpoint: give the source startingOffsets="
        f"resume_offsets({application_id!r}, ...) and the sink resume=True"
    )


def _of_another_query(application_id: str, last: Progress, batch: Progress, resume: bool) -> Judgement:
    """The judgement on a batch of another query than the last one's, without `new_query`."""
    if resume and _goes_on(batch, last.source_offsets):
        return Judgement(Verdict.WRITE)
    return Judgement(
        Verdict.REFUSE,
        f"the application id {application_id!r} belongs to another query, and where that ended this one does not "
        f"begin: batch {last.batch_id}, the last one, ended at {_text(last.source_offsets)}. Nothing was written. "
        f"If the checkpoint was lost, {_way_on(application_id, batch.source_offsets, last.source_offsets)}. If this is "
        "to be a query of its own, choose a new application_id",
    )


def _later(application_id: str, last: Progress, batch: Progress, accept_gap: bool) -> Judgement:
    """The judgement on a batch of the same query whose number is larger than that of the last one."""
    verdict = FOLLOWING[start_of(batch.source_starts, last.source_offsets)]
    if verdict is Verdict.WRITE or (verdict is Verdict.MISSES and accept_gap):
        return Judgement(Verdict.WRITE)
    committed = f"batch {last.batch_id}, the last one committed, ended at {_text(last.source_offsets)}"
    if verdict is Verdict.MISSES:
        return Judgement(verdict, _missing(application_id, batch, committed))
    return Judgement(
        verdict,
        f"batch {batch.batch_id} of application {application_id!r} begins at {_text(batch.source_starts)}, but on "
        f"this cluster {committed}: rows that are committed would be written again. Earlier batches of this "
        f"checkpoint were written elsewhere. Nothing was written. Put the checkpoint back that was used here, or "
        f"{_way_on(application_id, batch.source_starts, last.source_offsets)}",
    )


def _goes_on(batch: Progress, last: Sequence[Any]) -> bool:
    """Whether a query of which this is the first batch began where the last batch of another one ended."""
    ends = batch.source_offsets
    if not last or len(ends) != len(last):
        return False
    return all(
        isinstance(end, Mapping) and isinstance(known, Mapping) and _begins_at(_began(end, batch.batch_id), known)
        for end, known in zip(ends, last, strict=True)
    )


def _began(end: Mapping[str, Any], batch_id: int) -> Any:
    """The position where a source began, from its end in a batch; None if that does not say."""
    if batch_id == 0 and BEGAN not in end and CLUSTER in end:
        return end  # it is ours, and gave nothing in the query's first batch
    return end.get(BEGAN)


def _begins_at(began: Any, last: Mapping[str, Any]) -> bool:
    """Whether `began` has every position of `last`, unchanged; it may have more, as of a partition that came later."""
    for name, known in last.items():
        here = None if began is None else began.get(name)
        if name in OF_THE_END:
            continue
        if isinstance(known, Mapping) and isinstance(here, Mapping):
            if any(here.get(inner) != value for inner, value in known.items()):
                return False
        elif here != known:
            return False
    return began is not None


def number_of(batch_id: int, last: int) -> Number:
    """How a batch number stands to that of the last committed batch."""
    if batch_id == last:
        return Number.SAME
    return Number.OLDER if batch_id < last else Number.LATER


def start_of(offsets: Sequence[Any], last: Sequence[Any]) -> End:
    """How the start of a batch stands to the end of the last committed one; a partition that came since is at 0."""
    found = end_of(offsets, last)
    return End.EQUAL if found is End.WITHIN and end_of(last, offsets) is End.WITHIN else found


def end_of(offsets: Sequence[Any], last: Sequence[Any]) -> End:
    """How the end of a batch, an entry for each source, stands to that of the last committed batch."""
    if not offsets or not last:
        return End.UNKNOWN
    # The same positions planned again may be seen under another leader.
    if [without([EPOCHS], each) for each in offsets] == [without([EPOCHS], each) for each in last]:
        return End.EQUAL
    within = len(offsets) == len(last) and all(_is_within(one, other) for one, other in zip(offsets, last, strict=True))
    return End.WITHIN if within else End.BEYOND


def _is_within(position: Any, last: Any) -> bool:
    """Whether a position is equal to `last` or before it, place by place; a place that `last` lacks was at 0."""
    if position == last or position is None:
        return True
    if isinstance(position, Mapping):
        known = last if isinstance(last, Mapping) else {}
        return all(_is_within(inner, known.get(name, 0)) for name, inner in position.items() if name not in OF_THE_END)
    return type(position) is int and type(last) is int and position < last


def _text(offsets: Sequence[Any]) -> str:
    return json.dumps(offsets, separators=(",", ":"))
