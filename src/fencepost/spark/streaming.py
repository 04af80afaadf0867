"""Streaming queries that write exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fencepost.client.cluster import Cluster
from fencepost.client.portal import Portal, in_background
from fencepost.spark.checkpoint import Checkpoint, make_state
from fencepost.spark.positions import Positions
from fencepost.spark.progress import Progress, ensure_topic, read_progress
from fencepost.spark.running_query import QUERY_ID
from fencepost.spark.security import check_names, parse_security
from fencepost.spark.session import refuse_connect
from fencepost.spark.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LARGEST_RUN_ID: Final = 200

Transform = Callable[["DataFrame", int], "DataFrame"]
"""A function of the rows of a micro-batch and its number, which returns the rows to write."""


def foreach_batch(
    sink: Sink, checkpoint_location: str, *, topic: str | None = None, transform: Transform | None = None
) -> Callable[[DataFrame, int], None]:
    """A function for `df.writeStream.foreachBatch(...)`; `checkpoint_location` must be that of the same query.

    `transform` makes of a micro-batch the rows to write, of several topics if need be (column topic): all of them are
    one transaction.  It may run more than once for a batch, and must give the same rows each time.  Raises RuntimeError
    with Spark Connect; the function raises what `Sink.write` does, and ValueError for the checkpoint of another query.
    """
    refuse_connect()
    session = _session_of_this_thread()
    if session is not None:
        Checkpoint(checkpoint_location).clear_interrupted_start(session)
    return _writing_with(sink, checkpoint_location, topic, transform)


def _session_of_this_thread() -> SparkSession | None:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _writing_with(
    sink: Sink, checkpoint_location: str, topic: str | None, transform: Transform | None
) -> Callable[[DataFrame, int], None]:
    checkpoint = Checkpoint(checkpoint_location)

    def write(batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        query_id = checkpoint.query_id(spark)
        running = spark.sparkContext.getLocalProperty(QUERY_ID)
        if running not in (None, query_id):
            raise ValueError(
                f"checkpoint_location={checkpoint_location!r} is that of query {query_id!r}, and this is query "
                f"{running!r}: give foreach_batch the checkpointLocation of the query that it is for"
            )
        starts, ends = checkpoint.offsets(spark, batch_id - 1), checkpoint.offsets(spark, batch_id)
        if not ends:
            raise ValueError(
                f"{checkpoint_location}/offsets/{batch_id} is not there: a micro-batch can be known again only if "
                "Spark writes down where it ends before it runs, as it does with every trigger but those of real time"
            )
        ends = checkpoint.with_files(spark, ends)
        rows = batch if transform is None else transform(batch, batch_id)
        wrote = sink.write(rows, batch_id, query_id, topic=topic, source_offsets=ends, source_starts=starts)
        if not wrote and running is None and checkpoint.has_state(spark):
            make_state(batch)  # the sink does not know of it in a thread that Spark did not start

    return write


def write_stream(
    df: DataFrame,
    *,
    application_id: str,
    bootstrap_servers: str,
    checkpoint_location: str,
    topic: str | None = None,
    topics: Sequence[str] = (),
    transform: Transform | None = None,
    trigger: Mapping[str, Any] | None = None,
    output_mode: str | None = None,
    query_name: str | None = None,
    **options: Any,
) -> StreamingQuery:
    """Start a query that writes each micro-batch in one transaction: visible whole, once, or not at all.

    The rows (after `transform`, if given) have the columns value and, if wanted, key, partition, timestamp, headers and
    topic; without a column topic all go to `topic`, with one name all of them in `topics`.  `trigger` is what
    `DataStreamWriter.trigger` takes, as {"availableNow": True}, and `output_mode` what its `outputMode` does: "append"
    (Spark's default), "update" or "complete".  `options` are those of `Sink`.

    Where the query ends of an error, the last line of what its `awaitTermination` raises is the sentence that says why.

    The rows of a micro-batch must be the same when it is computed again: with uuid(), rand() or the current time in
    the plan it is still committed once, but as one of several versions.
    """
    refuse_connect(df)
    from fencepost.spark.explained import ExplainedQuery

    names = [topic] if topic is not None else list(topics)
    sink = Sink(application_id, bootstrap_servers, names, **options)
    Checkpoint(checkpoint_location).clear_interrupted_start(df.sparkSession)
    writer = df.writeStream.foreachBatch(_writing_with(sink, checkpoint_location, topic, transform))
    writer = writer.option("checkpointLocation", checkpoint_location)
    if output_mode is not None:
        writer = writer.outputMode(output_mode)
    if query_name is not None:
        writer = writer.queryName(query_name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    query = ExplainedQuery(writer.start()._jsq)
    in_background(partial(_close_after, query, sink), f"fencepost-until-end-of-{application_id}")
    return query


def _close_after(query: StreamingQuery, sink: Sink) -> None:
    with suppress(Exception):  # of the query, which its caller is told; or of a session that is no more
        query.awaitTermination()
    sink.close()


def resume_offsets(
    application_id: str,
    bootstrap_servers: str,
    *,
    source: int = 0,
    otherwise: str = "earliest",
    kafka_options: Mapping[str, str] | None = None,
) -> str:
    """The end of the last committed micro-batch of an application, as the option `startingOffsets` of a new query.

    With it, and `resume=True` for the sink, a query goes on whose checkpoint was lost, or is an older copy: no row is
    left out, and none written twice.  What the checkpoint had besides, state and watermarks, is lost.

    `bootstrap_servers`: of the sink.  `source`: which one, in the order in which the query names them.  `otherwise`:
    what to give where nothing was committed yet.  `kafka_options`: as of `Sink`.  Raises ValueError if the application
    has no such source, or one that does not read topics.
    """
    portal = Portal("fencepost-spark-resume")
    try:
        last = portal.call(_last_progress(application_id, bootstrap_servers, kafka_options))
    finally:
        portal.close()
    if last is None:
        return otherwise
    try:
        ended = Positions.decode(last.source_offsets[source]).alone
    except (IndexError, ValueError, TypeError, AttributeError):
        raise ValueError(
            f"batch {last.batch_id} of application {application_id!r} has no positions in topics for source {source}: "
            f"its sources ended at {json.dumps(last.source_offsets)}"
        ) from None
    return json.dumps(ended.encode(), separators=(",", ":"))


async def _last_progress(
    application_id: str, bootstrap_servers: str, kafka_options: Mapping[str, str] | None
) -> Progress | None:
    check_names(kafka_options)
    security = parse_security(kafka_options)
    cluster = Cluster(bootstrap_servers, client_id="fencepost-spark-resume", security=security)
    try:
        await ensure_topic(cluster)
        return await read_progress(cluster, application_id)
    finally:
        await cluster.close()


def write(
    df: DataFrame,
    *,
    application_id: str,
    run_id: str,
    bootstrap_servers: str,
    topic: str | None = None,
    topics: Sequence[str] = (),
    **options: Any,
) -> bool:
    """Write a DataFrame in one transaction; whether it was written now, and not by the same run before.

    `run_id` names this run of the job, in at most 200 characters: the same again writes nothing if it was committed
    before, and 500 other runs at most came after it.  Columns and options are those of `write_stream`.  Raises
    ValueError for what cannot be written, WriteFailed if it was not, and RuntimeError with Spark Connect.
    """
    refuse_connect(df)
    if df.isStreaming:
        raise ValueError("write() was given the rows of a stream: write_stream() writes those")
    if not run_id or len(run_id) > _LARGEST_RUN_ID:
        raise ValueError(f"run_id={run_id!r}: it must have 1 to {_LARGEST_RUN_ID} characters")
    sink = Sink(application_id, bootstrap_servers, [topic] if topic is not None else list(topics), **options)
    try:
        return sink.write(df, 0, run_id, topic=topic, new_query=True)
    finally:
        sink.close()
