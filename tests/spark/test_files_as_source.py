"""A stream of files, whose offsets say only how many batches there were."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.places import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_older_copy_of_a_checkpoint_does_not_leave_out_files(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    """Planned again the batch has files that came since: taken for the committed one it would leave them out."""
    files, checkpoint, copy = tmp_path / "files", Path(place.checkpoint), tmp_path / "copy"
    files.mkdir()

    def put(number: int) -> None:
        made = tmp_path / f"{number}.txt"
        made.write_text(f"{number}\n")
        made.rename(files / made.name)

    def run() -> None:
        place.write(spark.readStream.text(str(files)))

    for number in range(2):
        put(number)
        run()
    shutil.copytree(checkpoint, copy)
    put(2)
    run()
    newest = tmp_path / "newest"
    checkpoint.rename(newest)
    shutil.copytree(copy, checkpoint)
    put(3)
    with pytest.raises(StreamingQueryException, match=r"reads other files than .* older copy"):
        run()
    assert place.shown() == [0, 1, 2]
    shutil.rmtree(checkpoint)
    newest.rename(checkpoint)
    run()
    assert place.shown() == [0, 1, 2, 3]
