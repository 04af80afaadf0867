"""Plans of queries that keep state, of every kind that Spark has for Python; rows depend on all that came before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.spark.stateful_query import windows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Plan(NamedTuple):
    """`build` makes the rows to write of one source or two, which are written in this output mode."""

    build: Callable[..., DataFrame]
    sources: int = 1
    mode: str = "append"
    needs_rocksdb: bool = False


def _value(*parts: Column | str) -> Column:
    from pyspark.sql import functions as sf

    return sf.concat_ws(":", *parts).alias("value")


def _seconds(name: str) -> Column:
    from pyspark.sql import functions as sf

    return sf.unix_timestamp(name).cast("string")


def _texts(events: DataFrame, late: int) -> DataFrame:
    return events.withWatermark("timestamp", f"{late} seconds").selectExpr(
        "cast(value as string) as value", "timestamp"
    )


def counts(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sf

    counted = _texts(events, 5).groupBy(sf.window("timestamp", "10 seconds"), "value").count()
    return counted.select(_value(_seconds("window.start"), "value", "count"))


def sessions(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sf

    counted = _texts(events, 5).groupBy(sf.session_window("timestamp", "2 seconds"), "value").count()
    return counted.select(_value(_seconds("session_window.start"), "value", "count"))


def without_duplicates(events: DataFrame) -> DataFrame:
    return events.dropDuplicates(["value"]).selectExpr("cast(value as string) as value")


def without_duplicates_for_a_while(events: DataFrame) -> DataFrame:
    fewer = _texts(events, 5).dropDuplicatesWithinWatermark(["value"])
    return fewer.select(_value(_seconds("timestamp"), "value"))


def joined(how: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
    def build(events: DataFrame, others: DataFrame) -> DataFrame:
        from pyspark.sql import functions as sf

        none = sf.lit("none")
        left, right = _coalesced("lv"), _coalesced("rv")
        times = (sf.coalesce(_seconds(name), none) for name in ("lt", "rt"))
        return _join(_texts(events, 5), _texts(others, 3), how).select(_value(left, right, *times))

    return build


def _coalesced(name: str) -> Column:
    from pyspark.sql import functions as sf

    return sf.coalesce(sf.col(name), sf.lit("none"))


def _join(events: DataFrame, others: DataFrame, how: str) -> DataFrame:
    from pyspark.sql import functions as sf

    left = events.withColumnsRenamed({"value": "lv", "timestamp": "lt"})
    right = others.withColumnsRenamed({"value": "rv", "timestamp": "rt"})
    near = "lv = rv AND rt BETWEEN lt - interval 4 seconds AND lt + interval 4 seconds"
    return left.join(right, sf.expr(near), how)


def one_after_the_other(events: DataFrame, others: DataFrame) -> DataFrame:
    """Three operators with state: without duplicates, joined, counted in windows."""
    from pyspark.sql import functions as sf

    fewer = _texts(events, 5).dropDuplicatesWithinWatermark(["value", "timestamp"])
    grouped = _join(fewer, _texts(others, 3), "leftOuter").groupBy(sf.window("lt", "10 seconds"))
    counted = grouped.agg(sf.count("*").alias("all"), sf.count("rt").alias("met"))
    return counted.select(_value(_seconds("window.start"), "all", "met"))


def counts_that_time_out(events: DataFrame) -> DataFrame:
    """applyInPandasWithState: a key counts until nothing came for it for two seconds."""

    def count(key: tuple[Any, ...], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        if state.hasTimedOut:
            (total,) = state.get
            state.remove()
            yield pd.DataFrame({"value": [f"{key[0]}:gone:{total}"]})
            return
        total, last = state.get[0] if state.exists else 0, 0
        for frame in frames:
            total += len(frame)
            last = max(last, int(frame["timestamp"].max().timestamp() * 1000))
        state.update((total,))
        state.setTimeoutTimestamp(max(last + 2000, state.getCurrentWatermarkMs() + 1))
        yield pd.DataFrame({"value": [f"{key[0]}:{total}"]})

    key = "concat(cast(value as string), '/', cast(unix_timestamp(timestamp) / 13 as int)) as value"
    keyed = events.withWatermark("timestamp", "5 seconds").selectExpr(key, "timestamp").groupBy("value")
    return keyed.applyInPandasWithState(count, "value string", "total long", "append", "EventTimeTimeout")


def processor(pandas: bool) -> Callable[[DataFrame], DataFrame]:
    """transformWithState, or its twin in pandas: values, lists, maps and timers."""

    def build(events: DataFrame) -> DataFrame:
        import pandas as pd
        from pyspark.sql import Row
        from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

        class Counting(StatefulProcessor):
            def init(self, handle: StatefulProcessorHandle) -> None:
                self._handle = handle
                self._total = handle.getValueState("total", "total long")
                self._seen = handle.getListState("seen", "at long")
                self._thirds = handle.getMapState("thirds", "third string", "count long")

            def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002
                times = [at for frame in rows for at in frame["timestamp"]] if pandas else [row[1] for row in rows]
                (total,) = self._total.get() or (0,)
                for second in (int(at.timestamp()) for at in times):
                    third = (str(second % 3),)
                    (count,) = (self._thirds.containsKey(third) and self._thirds.getValue(third)) or (0,)
                    self._thirds.updateValue(third, (count + 1,))
                    self._seen.appendValue((second,))
                    self._handle.registerTimer((second + 3) * 1000)
                self._total.update((total + len(times),))
                yield from self._said(f"{key[0]}:{total + len(times)}")

            def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: ARG002
                seconds = expiredTimerInfo.getExpiryTimeInMs() // 1000
                thirds = sorted((third[0], count[0]) for third, count in self._thirds.iterator())
                yield from self._said(f"{key[0]}:{seconds}:{len(list(self._seen.get()))}:{thirds}")

            def _said(self, text: str) -> Iterator[Any]:
                yield pd.DataFrame({"value": [text]}) if pandas else Row(value=text)

            def close(self) -> None:
                """Nothing is open."""

        keyed = _texts(events, 5).groupBy("value")
        if pandas:
            return keyed.transformWithStateInPandas(Counting(), "value string", "Append", "EventTime")
        return keyed.transformWithState(Counting(), "value string", "Append", "EventTime")

    return build


PLANS: Final = {
    "one after the other": Plan(one_after_the_other, 2),
    "counts, update": Plan(counts, mode="update"),
    "counts, complete": Plan(counts, mode="complete"),
    "windows": Plan(windows),
    "sessions": Plan(sessions),
    "dropDuplicates": Plan(without_duplicates),
    "dropDuplicatesWithinWatermark": Plan(without_duplicates_for_a_while),
    "inner join": Plan(joined("inner"), 2),
    "left join": Plan(joined("leftOuter"), 2),
    "full join": Plan(joined("fullOuter"), 2),
    "applyInPandasWithState": Plan(counts_that_time_out),
    "transformWithState": Plan(processor(pandas=False), needs_rocksdb=True),
    "transformWithStateInPandas": Plan(processor(pandas=True), needs_rocksdb=True),
}
