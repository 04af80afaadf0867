"""A source topic with rows, a target, and a stream from one to the other through Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from fencepost.broker import Broker
from fencepost.client.blocking import Admin, Producer
from fencepost.client.blocking import Consumer as Group
from fencepost.protocol.types import TopicPartition as ClientPartition
from fencepost.spark import write_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS = 500


class Place:
    """A source topic with rows and an empty target, with names of their own."""

    def __init__(self, broker: Broker, tmp_path: Path, namesake: Place | None = None) -> None:
        self.servers = broker.bootstrap_servers
        self.name: str = uuid.uuid4().hex[:8] if namesake is None else namesake.name
        self.source, self.target = f"in-{self.name}", f"out-{self.name}"
        self.application = f"app-{self.name}"
        self.checkpoint = str(tmp_path / "checkpoint")
        with Admin(self.servers) as admin:
            admin.create_topic(self.source, partitions=3)
            admin.create_topic(self.target, partitions=3)
        if namesake is None:
            self.fill(0, ROWS)

    def fill(self, first: int, count: int, topic: str = "", partition: int | None = None) -> None:
        with Producer(self.servers) as producer:
            for number in range(first, first + count):
                producer.send(topic or self.source, b"%d" % number, key=b"k%d" % number, partition=partition)
            producer.flush()

    def stream(
        self,
        spark: SparkSession,
        most: int = ROWS,
        topic: str | None = "",
        starting: str = "earliest",
        group: str = "",
        more: Mapping[str, str] | None = None,
    ) -> DataFrame:
        return (
            spark.readStream.format("fencepost")
            .option("kafka.bootstrap.servers", self.servers)
            .options(**({} if topic is None else {"subscribe": topic or self.source}))
            .option("startingOffsets", starting)
            .option("maxOffsetsPerTrigger", most)
            .options(**({"kafka.group.id": group} if group else {}))
            .options(**(more or {}))
            .load()
            .select("key", "value")
        )

    def run(self, spark: SparkSession, starting: str = "earliest", most: int = ROWS, **options: Any) -> StreamingQuery:
        return self.write(self.stream(spark, most, starting=starting), **options)

    def write(self, rows: DataFrame, **options: Any) -> StreamingQuery:
        """All that there is now; the query, when it has ended."""
        query = write_stream(
            rows,
            topic=self.target,
            application_id=self.application,
            bootstrap_servers=self.servers,
            checkpoint_location=self.checkpoint,
            trigger={"availableNow": True},
            **options,
        )
        query.awaitTermination()
        return query

    def read_by_the_group(self) -> int | None:
        """How much of the source the application's group has behind it; None: it has no position."""
        partitions = [ClientPartition(self.source, n) for n in range(3)]
        with Group(bootstrap_servers=self.servers, group_id=self.application) as group:
            stored = group.committed(partitions)
        offsets = [position.offset for position in stored.values() if position is not None]
        return sum(offsets) if offsets else None

    def shown(self) -> list[int]:
        """What read_committed shows of the target, by a client that is not ours."""
        with Admin(self.servers) as admin:  # Apache Kafka answers a commit before its markers are there
            give_up = time.monotonic() + 20
            while any(state.startswith("Prepare") for state in admin.list_transactions().values()):
                assert time.monotonic() < give_up, "a decision is not carried out"
                time.sleep(0.05)
        reader = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": uuid.uuid4().hex,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "enable.auto.commit": False,
            }
        )
        reader.assign([TopicPartition(self.target, n, 0) for n in range(3)])
        values, ended = [], 0
        while ended < 3:
            message = reader.poll(20)
            assert message is not None
            error = message.error()
            if error is None:
                values.append(int(message.value() or b""))
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                ended += 1
        reader.close()
        return sorted(values)
