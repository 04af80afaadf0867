"""A stream of files, whose offsets say only how many batches there were."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.places import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_COMPACTS = "spark.sql.streaming.fileSource.log.compactInterval"


@pytest.fixture(params=["10", "2"])
def spark_that_compacts(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """Spark whose file log has every so many batches a file that has those of all earlier ones too; 10: its default."""
    spark.conf.set(_COMPACTS, request.param)
    yield spark
    spark.conf.unset(_COMPACTS)


def test_an_older_copy_of_a_checkpoint_does_not_leave_out_files(
    spark_that_compacts: SparkSession, place: Place, tmp_path: Path
) -> None:
    """Planned again the batch has files that came since: taken for the committed one it would leave them out."""
    spark = spark_that_compacts
    files, checkpoint, copy = tmp_path / "files", Path(place.checkpoint), tmp_path / "copy"
    files.mkdir()

    def put(number: int) -> None:
        made = tmp_path / f"{number}.txt"
        made.write_text(f"{number}\n")
        made.rename(files / made.name)

    def run() -> None:
        place.write(spark.readStream.text(str(files)))

    for number in range(4):
        if number == 3:
            shutil.copytree(checkpoint, copy)
        put(number)
        run()
    newest = tmp_path / "newest"
    checkpoint.rename(newest)
    shutil.copytree(copy, checkpoint)
    put(4)
    with pytest.raises(StreamingQueryException, match=r"reads other files than .* older copy"):
        run()
    assert place.shown() == [0, 1, 2, 3]
    shutil.rmtree(checkpoint)
    newest.rename(checkpoint)
    run()
    assert place.shown() == [0, 1, 2, 3, 4]
