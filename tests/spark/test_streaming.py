"""What is read of Spark's own checkpoint, without Spark."""

from __future__ import annotations

import json
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.spark.sink import Sink
from fencepost.spark.streaming import Checkpoint, foreach_batch


def checkpoint(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> Checkpoint:
    monkeypatch.setattr(Checkpoint, "_has", lambda _, __, name: name in files)
    monkeypatch.setattr(Checkpoint, "_text", lambda _, __, name: files[name])
    return Checkpoint("somewhere")


@pytest.mark.parametrize("gives", list(product((True, False), repeat=3)))
def test_each_source_of_a_batch_has_its_place_whether_it_gave_anything_or_not(
    gives: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = cast(Any, None)
    batches = [
        [{"in": {"0": 10 * number + place}} if gave else None for place, gave in enumerate(gives)]
        for number in range(3)
    ]
    files = {
        f"offsets/{number}": "\n".join(
            ["v1", json.dumps({"batchWatermarkMs": 0}), *("-" if each is None else json.dumps(each) for each in ends)]
        )
        for number, ends in enumerate(batches)
    }
    found = checkpoint(monkeypatch, files)
    assert [found.offsets(nobody, number) for number in range(3)] == batches
    assert found.offsets(nobody, 3) == found.offsets(nobody, -1) == []


@pytest.mark.parametrize(("names", "order"), [(list(map(str, range(11))), range(11)), (["b", "c", "a_1"], [2, 0, 1])])
def test_sources_that_have_names_are_in_one_order_however_they_are_written_down(
    names: list[str], order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with spark.sql.streaming.offsetLog.formatVersion 2; by number they are where format 1 has them."""
    ends: list[Any] = [None if n == 1 else {"in:put": {"0": n}} for n in range(len(names))]
    lines = [f"{name}:{'-' if end is None else json.dumps(end)}" for name, end in zip(names, ends, strict=True)]
    files = {f"offsets/{number}": "\n".join(["v2", "{}", *some]) for number, some in enumerate([lines, lines[::-1]])}
    found = checkpoint(monkeypatch, files)
    assert found.offsets(cast(Any, None), 0) == found.offsets(cast(Any, None), 1) == [ends[n] for n in order]


@pytest.mark.parametrize("version", ["v3", "", "v"])
def test_an_offset_log_that_is_not_known_is_named(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checkpoint(monkeypatch, {"offsets/0": f"{version}\n{{}}\n-"})
    with pytest.raises(ValueError, match=r"somewhere/offsets/0 .* format"):
        found.offsets(cast(Any, None), 0)


@pytest.mark.parametrize(
    ("running", "said"),
    [("another", "is that of query 'mine', and this is query 'another'"), (None, None), ("mine", None)],
)
def test_the_checkpoint_of_another_query_is_refused(
    running: str | None, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its positions would be recorded as those of this query.  Who runs no query knows what he does."""
    checkpoint(monkeypatch, {"metadata": '{"id":"mine"}', "offsets/0": "v1\n{}\n-"})
    context = SimpleNamespace(getLocalProperty={"sql.streaming.queryId": running}.get)
    batch: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    written: list[Any] = []

    def keep(_: Sink, *what: Any, **__: Any) -> bool:
        written.append(what)
        return True

    monkeypatch.setattr(Sink, "write", keep)
    write = foreach_batch(Sink("app", "127.0.0.1:9092", ["out"]), "somewhere", topic="out")
    if said is None:
        write(batch, 0)
        assert written == [(batch, 0, "mine")]
    else:
        with pytest.raises(ValueError, match=said):
            write(batch, 0)
        assert written == []


def test_a_batch_whose_end_is_not_written_down_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its number alone it would be taken for whatever was committed under that."""
    checkpoint(monkeypatch, {"metadata": '{"id":"mine"}', "offsets/0": "v1\n{}\n-"})
    monkeypatch.setattr(Sink, "write", lambda *_, **__: pytest.fail("it was written"))
    context = SimpleNamespace(getLocalProperty=lambda _: "mine")
    batch: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    write = foreach_batch(Sink("app", "127.0.0.1:9092", ["out"]), "somewhere", topic="out")
    with pytest.raises(ValueError, match="somewhere/offsets/1 is not there"):
        write(batch, 1)


def test_a_directory_that_is_no_checkpoint_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checkpoint(monkeypatch, {})
    with pytest.raises(ValueError, match="checkpoint_location='somewhere' is no checkpoint"):
        found.query_id(cast(Any, None))
