"""Spark's own Kafka connector as the peer: its jars from Maven Central, and a Spark that they were built for.

The newest connector whose jars fit a Spark from PyPI is 3.5.1 (Scala 2.12), so the peer has a Python environment of its
own, made on first use.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.apache_kafka import CACHE, NoPeer, fetch_jars

VERSION = "3.5.1"
JARS = CACHE / f"spark-kafka-connector-{VERSION}"
ENVIRONMENT = Path(__file__).resolve().parent.parent / ".bench" / "spark-3.5"

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fencepost</groupId><artifactId>spark-peer</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.12</artifactId><version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
_OPTIONS = (
    "-DincludeGroupIds=org.apache.spark,org.apache.kafka,org.apache.commons",
    "-DexcludeArtifactIds=spark-tags_2.12",
)


def spark_peer() -> tuple[Path, str]:
    """The peer's Python, and the value of spark.jars.  Raises NoPeer."""
    fetch_jars(JARS, POM, "Spark's Kafka connector", *_OPTIONS)
    python = ENVIRONMENT / "bin" / "python"
    ready = ENVIRONMENT / "complete"
    if not ready.exists():
        print("setting up Spark 3.5 for the peer ...", flush=True)
        packages = [f"pyspark=={VERSION}", "numpy<2", "confluent-kafka"]
        for command in (
            [sys.executable, "-m", "venv", str(ENVIRONMENT)],
            [str(python), "-m", "pip", "install", *packages],
        ):
            if subprocess.run(command, capture_output=True).returncode != 0:
                raise NoPeer(f"Spark {VERSION} cannot be set up: {' '.join(command)} failed")
        ready.touch()
    return python, ",".join(str(jar) for jar in sorted(JARS.glob("*.jar")))
