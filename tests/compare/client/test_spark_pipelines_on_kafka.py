"""Pipelines of Spark on Apache Kafka: with transaction.version 2 and 1, and before there was such a feature.

The tests are those of `tests/spark`, which run on Fencepost, with another cluster under them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.compare.nodes.kafka_clusters import CLUSTERS, kafka_cluster
from tests.spark.places import Place
from tests.spark.test_pipeline import (  # noqa: F401 - they are tests of this module too
    test_a_batch_read_has_the_rows_and_columns_of_a_topic,
    test_a_batch_read_of_nothing_has_no_rows,
    test_a_query_that_is_stopped_in_a_batch_aborts_it_at_once,
    test_a_query_whose_batches_are_not_in_the_cluster_stops,
    test_a_query_whose_checkpoint_is_lost_goes_on_where_it_was,
    test_a_query_with_state_goes_on_after_a_batch_that_spark_does_not_know_to_be_committed,
    test_a_run_is_written_once,
    test_a_second_query_under_the_same_id_is_refused_and_disturbs_nobody,
    test_a_stream_is_written_once_over_restarts,
    test_an_older_copy_of_a_checkpoint_is_refused_unless_it_has_the_same_rows,
    test_from_one_cluster_to_another_positions_stay_where_the_source_is,
    test_rows_go_to_the_partitions_that_kafkas_partitioner_chooses,
    test_the_group_stands_where_every_source_of_a_stream_stands,
)
from tests.spark.test_pipeline_attempts import (  # noqa: F401
    test_a_batch_that_takes_too_long_is_told_which_setting_to_raise,
    test_a_batch_that_was_committed_is_not_written_again,
    test_a_driver_that_was_replaced_cannot_commit,
    test_a_sink_that_was_interrupted_writes_what_it_is_given_next,
    test_an_attempt_that_fails_leaves_nothing_and_the_batch_is_run_again,
    test_rows_that_can_never_be_written_fail_at_once_with_the_reason,
    test_times_that_the_broker_sets_are_those_of_the_rows,
    test_topics_that_are_not_there_are_named_and_not_made,
)
from tests.spark.test_running_queries import (  # noqa: F401
    test_a_topic_that_grows_and_is_made_anew_under_a_query,
    test_a_topic_that_is_made_anew_under_a_query_that_accepts_losses,
)

from fencepost.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.compare


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    config = {"spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
    session = local_session("tests", 2, config)
    yield session
    session.stop()


@pytest.fixture(scope="module", params=CLUSTERS)
def broker(request: pytest.FixtureRequest) -> Iterator[Any]:
    """What the tests want to know of a broker."""
    with kafka_cluster(request.param) as servers:
        yield SimpleNamespace(bootstrap_servers=servers)


@pytest.fixture
def place(broker: Any, tmp_path: Path) -> Place:
    return Place(broker, tmp_path)
