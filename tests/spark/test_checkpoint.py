"""What is read of Spark's own checkpoint, without Spark."""

from __future__ import annotations

import json
from contextlib import nullcontext
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.spark.checkpoint import Checkpoint, File, entries_of


class Counted:
    """A file that counts how much of it is read."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.bytes_read = 0
        self.file = File(len(content), self.read)

    def read(self, position: int, count: int) -> bytes:
        part = self.content[position : position + count]
        assert len(part) == count
        self.bytes_read += count
        return part


def entry(name: str, batch_id: int) -> str:
    return json.dumps({"path": f"file:/{name}.txt", "timestamp": 5, "batchId": batch_id}, ensure_ascii=False)


def checkpoint(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> Checkpoint:
    monkeypatch.setattr(Checkpoint, "_has", lambda _, __, name: name in files)
    monkeypatch.setattr(Checkpoint, "_text", lambda _, __, name: files[name])
    monkeypatch.setattr(Checkpoint, "_opened", lambda _, __, name: nullcontext(Counted(files[name].encode()).file))
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


@pytest.mark.parametrize("compact", ["", ".compact"])
def test_what_counts_batches_of_files_says_which_files(monkeypatch: pytest.MonkeyPatch, compact: str) -> None:
    """Planned again it may be others, that came meanwhile; every tenth file has those of all batches before it too."""
    entries = [entry(name, 9) for name in "ab"]
    older = entry("0", 8)
    files = {"offsets/9": 'v1\n{}\n{"in":{"0":3}}\n{"logOffset":9}'}

    def ends(*found: str) -> list[Any]:
        there = {f"sources/1/9{compact}": "\n".join(["v1", *found])} if found else {}
        known = checkpoint(monkeypatch, files | there)
        return known.with_files(cast(Any, None), known.offsets(cast(Any, None), 9))

    both = ends(*entries)
    assert both[0] == {"in": {"0": 3}} and both[1].keys() == {"logOffset", "@files"}
    assert ends(*reversed(entries)) == both
    assert ends(older, *entries) == both
    assert ends(entries[0]) != both
    assert ends()[1] == {"logOffset": 9}, "where Spark has removed it nothing is said"


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("own", [0, 1, 2000])
def test_of_every_file_that_was_ever_read_only_those_of_the_batch_are_read_again(own: int, end: str) -> None:
    older = [entry(f"{number}", number // 100) for number in range(40_000)]
    entries = [entry(f"\u20ac{number}", 999) for number in range(own)]
    log = Counted(("\n".join(["v1", *older, *entries]) + end).encode())
    assert sorted(entries_of(999, log.file)) == sorted(entries)
    assert log.bytes_read < len("\n".join(entries).encode()) + 150_000 < len(log.content)


@pytest.mark.parametrize("count", [0, 1, 2000])
def test_a_log_file_of_one_batch_is_read_whole(count: int) -> None:
    entries = [entry(f"\u20ac{number}", 0) for number in range(count)]
    assert entries_of(0, Counted("\n".join(["v1", *entries]).encode()).file)[::-1] == entries


BEGUN = ".0.0c4d07eb-7a07-4920-9f1e-d5f852228534.tmp"


@pytest.mark.parametrize(
    ("there", "removed"),
    [
        ({}, []),
        ({"offsets": []}, []),
        ({"offsets": [BEGUN], "commits": []}, [BEGUN]),
        ({"offsets": [BEGUN, BEGUN.replace("0c4d", "1c4d")]}, [BEGUN, BEGUN.replace("0c4d", "1c4d")]),
        ({"offsets": [BEGUN, "0"]}, []),
        ({"offsets": [BEGUN, "notes.txt"]}, []),
        ({"offsets": [BEGUN.replace(".0.", ".1.")]}, []),
        ({"offsets": [BEGUN], "commits": ["0"]}, []),
        ({"offsets": [BEGUN], "state": ["0"]}, []),
    ],
)
def test_only_what_spark_began_to_write_of_its_first_offsets_is_removed(
    there: dict[str, list[str]], removed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[str] = []
    monkeypatch.setattr(Checkpoint, "_names", lambda _, __, folder: there.get(folder, []))
    monkeypatch.setattr(Checkpoint, "_remove", lambda _, __, name: gone.append(name))
    Checkpoint("somewhere").clear_interrupted_start(cast(Any, None))
    assert gone == [f"offsets/{name}" for name in removed]


def test_a_directory_that_is_no_checkpoint_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checkpoint(monkeypatch, {})
    with pytest.raises(ValueError, match="checkpoint_location='somewhere' is no checkpoint"):
        found.query_id(cast(Any, None))


@pytest.mark.parametrize("fails", [False, True])
def test_a_file_of_the_checkpoint_is_closed_however_its_reading_ends(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    closed: list[bool] = []

    def read(*_: object) -> str:
        if fails:
            raise OSError("the connection is lost")
        return "text"

    stream = SimpleNamespace(close=lambda: closed.append(True))
    monkeypatch.setattr(Checkpoint, "_place", lambda *_: (SimpleNamespace(open=lambda _: stream), "path"))
    commons = SimpleNamespace(io=SimpleNamespace(IOUtils=SimpleNamespace(toString=read)))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(commons=commons)))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm))
    with pytest.raises(OSError, match="lost") if fails else nullcontext():
        assert Checkpoint("somewhere")._text(spark, "metadata") == "text"
    assert closed == [True]
