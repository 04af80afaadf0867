"""What is read of Spark's own checkpoint, without Spark."""

from __future__ import annotations

import json
from itertools import product
from typing import Any, cast

import pytest

from fencepost.spark.streaming import Checkpoint


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
