"""The examples of the page on pipelines, run as they stand; that of the audit is in `test_pipeline`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.docs.reading import ROOT, blocks, lines
from tests.spark.places import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "pipelines.md"
RESUMED, BEHIND, REPORT, _ = blocks(PAGE, "python")


def at(place: Place, example: str, folder: Path) -> str:
    """The example, with the topics and the application of this place, and checkpoints in this folder."""
    named = example.replace('"payments"', f'"{place.source}"').replace("checkpoints/", f"{folder}/")
    return named.replace('topic="ledger"', f'topic="{place.target}"').replace('"ledger"', f'"{place.application}"')


def test_a_lost_checkpoint_and_what_is_told_meanwhile(
    spark: SparkSession, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.run(spark)
    place.fill(500, 100)
    names: dict[str, Any] = {"spark": spark, "servers": place.servers}
    exec(at(place, RESUMED, tmp_path), names)
    names["query"].processAllAvailable()
    exec(at(place, BEHIND, tmp_path), names)
    names["query"].stop()
    assert place.shown() == list(range(600))
    (told,) = capsys.readouterr().out.splitlines()
    assert place.source in told and told.endswith(" 0 0.0 0")

    place.fill(600, 10)
    exec(at(place, REPORT, tmp_path), names)
    names["query"].processAllAvailable()
    names["query"].stop()
    assert place.shown() == list(range(610))
    printed = capsys.readouterr().out.splitlines()
    (line,) = (each for each in lines(PAGE) if each.startswith("batch "))
    assert [re.sub(r"[0-9]+", "N", each) for each in printed] == [re.sub(r"[0-9]+", "N", line)]
    assert "10 rows" in printed[0]
