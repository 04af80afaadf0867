"""A micro-batch was committed before only if its number and the positions of its sources say so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.spark.committed import FOLLOWING, VERDICTS, End, Number, Verdict, end_of, judge
from fencepost.spark.positions import BEGAN, EPOCHS, FILES, FIRSTS
from fencepost.spark.progress import Progress

LAST = Progress("query", 5, [{"in": {"0": 10, "1": 20}}])


def batch(number: int, *offsets: Any, query: str = "query") -> Progress:
    return Progress.of(query, number, offsets)


@pytest.mark.parametrize(
    ("number", "positions", "verdict"),
    [
        (5, {"0": 10, "1": 20}, Verdict.SKIP),
        (5, {"0": 9, "1": 20}, Verdict.REFUSE),
        (5, {"0": 11, "1": 20}, Verdict.REFUSE),
        (5, {"0": 10, "1": 20, "2": 0}, Verdict.REFUSE),
        (4, {"0": 10, "1": 20}, Verdict.SKIP),
        (4, {"0": 8, "1": 20}, Verdict.SKIP),
        (4, {"0": 8}, Verdict.SKIP),
        (4, {"0": 8, "1": 21}, Verdict.REFUSE),
        (4, {"0": 8, "1": 20, "2": 1}, Verdict.REFUSE),
        (4, {"0": 8, "1": 20, "2": 0}, Verdict.SKIP),
        (6, {"0": 12, "1": 20}, Verdict.WRITE),
        (6, {"0": 10, "1": 20}, Verdict.WRITE),
        (9, {"0": 12, "1": 20}, Verdict.WRITE),
    ],
)
def test_number_and_positions_decide(number: int, positions: dict[str, int], verdict: Verdict) -> None:
    judgement = judge("orders", LAST, batch(number, {"in": positions}), new_query=False)
    assert judgement.verdict is verdict
    if verdict is Verdict.REFUSE:
        for needed in ("'orders'", '{"in":{"0":10,"1":20}}', "older copy", "resume_offsets", "resume=True"):
            assert needed in judgement.reason


@pytest.mark.parametrize(
    ("starts", "verdict"),
    [
        ([{"in": {"0": 7, "1": 15}}], Verdict.SKIP),
        ([{"in": {"1": 15, "0": 7}, EPOCHS: {"in": {"0": 3}}, FIRSTS: {"in": {"1": 2}}}], Verdict.SKIP),
        ([], Verdict.SKIP),
        ([{"in": {"0": 10, "1": 20}}], Verdict.REFUSE),
        ([{"in": {"0": 7, "1": 14}}], Verdict.REFUSE),
        ([{"in": {"0": 7}}], Verdict.REFUSE),
    ],
)
def test_the_same_number_and_end_are_those_of_another_batch_if_it_begins_elsewhere(
    starts: list[Any], verdict: Verdict
) -> None:
    """What an aggregate gives in it depends on where the batch before it ended."""
    ends = [{"in": {"0": 10, "1": 20}}]
    last = Progress.decode(Progress.of("query", 5, ends, [{"in": {"0": 7, "1": 15}}]).encode())
    judgement = judge("orders", last, Progress.of("query", 5, ends, starts), new_query=False)
    assert judgement.verdict is verdict
    if verdict is Verdict.REFUSE:
        for needed in (f"begins at {json.dumps(starts, separators=(',', ':'))}", "older copy", "resume_offsets"):
            assert needed in judgement.reason
    older = last._replace(started="")  # as a version before this one wrote it
    assert judge("orders", older, Progress.of("query", 5, ends, starts), new_query=False).verdict is Verdict.SKIP


@pytest.mark.parametrize(
    ("number", "count", "files", "verdict"),
    [
        (5, 4, "same", Verdict.SKIP),
        (5, 4, "others", Verdict.REFUSE),
        (4, 3, "others", Verdict.REFUSE),
        (4, 4, "same", Verdict.SKIP),
        (5, 4, None, Verdict.SKIP),
        (6, 5, "others", Verdict.WRITE),
    ],
)
def test_a_count_of_batches_does_not_tell_which_files_were_in_them(
    number: int, count: int, files: str | None, verdict: Verdict
) -> None:
    def ends(count: int, files: str | None) -> list[Any]:
        return [{"in": {"0": 10}}, {"logOffset": count, **({} if files is None else {FILES: files})}]

    last = Progress.decode(Progress.of("query", 5, ends(4, "same"), ends(3, "older")).encode())
    starts = ends(count - 1, "other") if number == 6 else ends(3, "other")
    judgement = judge("orders", last, Progress.of("query", number, ends(count, files), starts), new_query=False)
    assert judgement.verdict is verdict
    if verdict is Verdict.REFUSE:
        for needed in (f"batch {number} ", "reads other files than batch 5", "newest checkpoint"):
            assert needed in judgement.reason
    of_an_older_version = last._replace(files="")
    again = judge("orders", of_an_older_version, Progress.of("query", 5, ends(4, files), ends(3, "other")), False)
    assert again.verdict is Verdict.SKIP


@pytest.mark.parametrize(
    ("number", "last", "topics", "verdict"),
    [
        (5, ["a", "b"], ["b", "a", "b"], Verdict.SKIP),
        (5, ["a", "b"], ["a"], Verdict.REFUSE),
        (5, ["a"], ["a", "b"], Verdict.REFUSE),
        (5, [], ["a"], Verdict.SKIP),
        (5, ["a"], [], Verdict.SKIP),
        (4, ["a"], ["b"], Verdict.SKIP),
        (6, ["a"], ["b"], Verdict.WRITE),
    ],
)
@pytest.mark.parametrize("query_id", ["query", "run of a job"])
def test_a_write_to_other_topics_is_no_repetition(
    number: int, last: list[str], topics: list[str], verdict: Verdict, query_id: str
) -> None:
    """Two writes of a batch, or of a run: the second would be skipped, and its rows left out in silence."""
    ends = [] if query_id == "run of a job" else [{"in": {"0": 10}}]
    committed = Progress.decode(Progress.of(query_id, 5, ends, topics=last).encode())
    judgement = judge(
        "orders", committed, Progress.of(query_id, number, ends, topics=topics), new_query=query_id != "query"
    )
    assert judgement.verdict is verdict
    if verdict is Verdict.REFUSE:
        assert "batch 5 of application 'orders' was committed by another write" in judgement.reason


@pytest.mark.parametrize(
    ("starts", "verdict"),
    [
        ([], Verdict.WRITE),
        ([{"in": {"0": 10, "1": 20}}], Verdict.WRITE),
        ([{"in": {"0": 10, "1": 20, "2": 0}}], Verdict.WRITE),
        ([{"in": {"0": 9, "1": 20}}], Verdict.REFUSE),
        ([{"in": {"0": 10}}], Verdict.REFUSE),
        ([None], Verdict.REFUSE),
        ([{"in": {"0": 11, "1": 20}}], Verdict.MISSES),
        ([{"in": {"0": 10, "1": 20, "2": 1}}], Verdict.MISSES),
        ([{"in": {"0": 10, "1": 20}}, {"other": {"0": 1}}], Verdict.MISSES),
    ],
)
@pytest.mark.parametrize("number", [6, 7, 99])
def test_nothing_is_missing_before_a_new_batch(number: int, starts: list[Any], verdict: Verdict) -> None:
    """Wherever its number stands: batches without rows may have been left out."""
    following = Progress.of("query", number, [{"in": {"0": 30, "1": 30}}], starts)
    judgement = judge("orders", LAST, following, new_query=False)
    assert judgement.verdict is verdict
    accepted = judge("orders", LAST, following, new_query=False, accept_gap=True).verdict
    assert accepted is (Verdict.REFUSE if verdict is Verdict.REFUSE else Verdict.WRITE)
    if verdict is Verdict.REFUSE:
        assert "would be written again" in judgement.reason and "resume_offsets" in judgement.reason
    if verdict is Verdict.MISSES:
        for needed in (f"batch {number} ", "'orders'", '{"in":{"0":10,"1":20}}', "resume_offsets", "accept_gap=True"):
            assert needed in judgement.reason


@pytest.mark.parametrize(
    ("starts", "verdict"),
    [([], Verdict.WRITE), ([None, None], Verdict.WRITE), ([None, {"in": {"0": 0}}], Verdict.MISSES)],
)
def test_before_the_first_batch_of_all_there_are_no_others(starts: list[Any], verdict: Verdict) -> None:
    first = Progress.of("query", 3, [{"in": {"0": 30}}] * 2, starts)
    assert judge("orders", None, first, new_query=False).verdict is verdict
    assert judge("orders", None, first, new_query=False, accept_gap=True).verdict is Verdict.WRITE


@pytest.mark.parametrize("name", ["orders", "bills"])
def test_where_no_batch_is_recorded_it_is_said_that_this_one_may_be_written_twice(name: str) -> None:
    reason = judge(name, None, Progress.of("query", 3, [{"in": {"0": 30}}], [{"in": {"0": 20}}]), False).reason
    for needed in ("'fencepost.progress' was deleted", "writes this batch twice", f"no position of group '{name}'"):
        assert needed in reason


@pytest.mark.parametrize("files", [{"logOffset": 3}, 7])
@pytest.mark.parametrize("others", [[], [{"in": {"0": 10}}]])
@pytest.mark.parametrize("last", [5, 3, None])
@pytest.mark.parametrize("query", ["query", "other"])
def test_who_reads_files_is_not_told_to_say_where_to_begin(
    query: str, last: int | None, others: Any, files: Any
) -> None:
    """Spark's source of files has no such option, with which the sink would know that nothing is missing."""
    ends = [*others, files]
    before = None if last is None else Progress.of("query", last, [*others, {"logOffset": 2}])
    judgement = judge("orders", before, Progress.of(query, 5, ends, ends), new_query=False, resume=True)
    assert judgement.verdict in (Verdict.REFUSE, Verdict.MISSES)
    assert "resume_offsets" not in judgement.reason
    assert "a new checkpoint and a new application_id" in judgement.reason
    assert "only what has no rows in the output yet" in judgement.reason


@pytest.mark.parametrize("position", [{"in": {0: 10}}, {"in": (1, 2)}])
def test_starts_are_compared_as_they_are_written(position: dict[str, Any]) -> None:
    last = Progress.of("query", 5, [position])
    assert judge("orders", last, Progress.of("query", 6, [position], [position]), False).verdict is Verdict.WRITE


def test_another_query_is_refused_unless_it_is_meant() -> None:
    other = batch(0, {"in": {"0": 1}}, query="another")
    assert "belongs to another query" in judge("orders", LAST, other, new_query=False).reason
    assert judge("orders", LAST, other, new_query=True).verdict is Verdict.WRITE
    run = judge("orders", LAST, batch(0, query="monday"), new_query=True)
    assert run.verdict is Verdict.REFUSE and "'orders' belongs to a stream" in run.reason
    assert judge("orders", Progress("sunday", 0, []), batch(0, query="monday"), new_query=True).verdict is Verdict.WRITE
    assert judge("orders", LAST, batch(5), new_query=True).verdict is Verdict.SKIP


@given(st.lists(st.sampled_from("abcde"), max_size=25), st.integers(1, 4))
def test_a_run_is_known_again_while_few_others_came_after_it(runs: list[str], remembered: int) -> None:
    last: Progress | None = None
    written: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fencepost.spark.progress.RUNS", remembered)
        for run in runs:
            record = Progress.of(run, 0, [])
            known = run in written[-remembered - 1 :]
            verdict = judge("orders", last, record, new_query=True).verdict
            assert verdict is (Verdict.SKIP if known else Verdict.WRITE)
            if not known:
                written = [each for each in written if each != run] + [run]
                last = Progress.decode(record.after(last).encode())


def begun_at(began: dict[str, Any] | None, number: int = 0) -> Progress:
    """A batch of another query, and where that says it began."""
    end: dict[str, Any] = {"in": {"0": 12, "1": 20, "2": 3}}
    return batch(number, end if began is None else {**end, BEGAN: began}, query="successor")


HERE = {"@cluster": "ours", "@topics": {"in": "one"}}


@pytest.mark.parametrize(
    ("began", "goes_on"),
    [
        ({"in": {"0": 10, "1": 20}}, True),
        ({"in": {"0": 10, "1": 20, "2": 0}, "new": {"0": 0}}, True),
        ({"in": {"0": 9, "1": 20}}, False),
        ({"in": {"0": 11, "1": 20}}, False),
        ({"in": {"0": 10}}, False),
        ({"other": {"0": 10, "1": 20}}, False),
        ({}, False),
        (None, False),
    ],
)
def test_a_successor_goes_on_only_from_where_the_last_batch_ended(began: dict[str, Any] | None, goes_on: bool) -> None:
    judgement = judge("orders", LAST, begun_at(began), new_query=False, resume=True)
    assert judgement.verdict is (Verdict.WRITE if goes_on else Verdict.REFUSE)
    assert goes_on or "resume_offsets('orders'" in judgement.reason
    assert judge("orders", LAST, begun_at(began), new_query=False).verdict is Verdict.REFUSE


@pytest.mark.parametrize("other", [{"@cluster": "theirs"}, {"@topics": {"in": "two"}}, {"@topics": {}}])
def test_a_successor_reads_the_same_topics_of_the_same_cluster(other: dict[str, Any]) -> None:
    last = Progress("query", 5, [{"in": {"0": 10, "1": 20}, **HERE, BEGAN: {"in": {"0": 1}}}])
    for there, verdict in ((HERE, Verdict.WRITE), (HERE | other, Verdict.REFUSE)):
        began = {"in": {"0": 10, "1": 20}, **there}
        assert judge("orders", last, begun_at(began), new_query=False, resume=True).verdict is verdict


def test_a_successor_has_the_sources_of_the_last_batch() -> None:
    position = {"in": {"0": 10}}
    last = Progress("query", 5, [position, position])
    one = {"in": {"0": 11}, BEGAN: position}
    for ends, verdict in (((one, one), Verdict.WRITE), ((one,), Verdict.REFUSE), ((one, 7), Verdict.REFUSE)):
        found = judge("orders", last, batch(0, *ends, query="successor"), new_query=False, resume=True)
        assert found.verdict is verdict


@pytest.mark.parametrize(
    ("number", "idle", "verdict"),
    [
        (0, {"in": {"0": 10}, **HERE}, Verdict.WRITE),
        (0, {"in": {"0": 11}, **HERE}, Verdict.REFUSE),
        (0, {"in": {"0": 10}}, Verdict.REFUSE),
        (1, {"in": {"0": 10}, **HERE}, Verdict.REFUSE),
    ],
    ids=["idle", "elsewhere", "written by another source", "not the first"],
)
def test_a_successor_may_have_a_source_that_has_nothing_yet(
    number: int, idle: dict[str, Any], verdict: Verdict
) -> None:
    """It says where it stands; where it began is said only by what moved."""
    position = {"in": {"0": 10}, **HERE}
    last = Progress("query", 5, [position, position if "@cluster" in idle else {"in": {"0": 10}}])
    moved = {"in": {"0": 12}, **HERE, BEGAN: position}
    found = judge("orders", last, batch(number, moved, idle, query="successor"), new_query=False, resume=True)
    assert found.verdict is verdict


def test_where_a_query_began_does_not_count_once_it_has() -> None:
    first = {"in": {"0": 8, "1": 20}, BEGAN: {"in": {"0": 2, "1": 20}}}
    for resume in (False, True):
        assert judge("orders", LAST, batch(0, first), new_query=False, resume=resume).verdict is Verdict.SKIP


def test_every_cell_of_the_tables_is_filled() -> None:
    assert set(VERDICTS) == {(number, end) for number in (Number.OLDER, Number.SAME) for end in End}
    assert set(FOLLOWING) == set(End)


@pytest.mark.parametrize(
    ("offsets", "last", "found"),
    [
        ([], [{"in": {"0": 1}}], End.UNKNOWN),
        ([{"in": {"0": 1}}], [], End.UNKNOWN),
        ([None], [{"in": {"0": 1}}], End.WITHIN),
        ([{"in": {"0": 1}}], [None], End.BEYOND),
        ([3], [4], End.WITHIN),
        ([5], [4], End.BEYOND),
        ([4, 4], [4], End.BEYOND),
        ([{"in": {"0": 1}, "more": {"0": 0}}], [{"in": {"0": 2}}], End.WITHIN),
        ([{"at": "2026-01-01"}], [{"at": "2026-01-02"}], End.BEYOND),
        ([{"at": "2026-01-01", "n": 1}], [{"at": "2026-01-01", "n": 2}], End.WITHIN),
        ([True], [2], End.BEYOND),
    ],
)
def test_ends_of_sources_of_any_kind(offsets: list[Any], last: list[Any], found: End) -> None:
    assert end_of(offsets, last) is found


POSITIONS = st.dictionaries(st.sampled_from("012"), st.integers(0, 3), min_size=1)


@given(POSITIONS, POSITIONS)
def test_within_means_that_no_partition_is_ahead(here: dict[str, int], there: dict[str, int]) -> None:
    ahead = any(offset > there.get(name, 0) for name, offset in here.items())
    expected = End.EQUAL if here == there else End.BEYOND if ahead else End.WITHIN
    assert end_of([{"in": here}], [{"in": there}]) is expected
