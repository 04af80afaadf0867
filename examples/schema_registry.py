"""Records that name their schema, as serializers of Confluent's registry and its like write them, in columns of Spark.

A framed value is a byte 0, the id of a schema in the registry in 4 bytes (big endian), and a body.  With Protobuf the
body begins with the place of its message in the schema; that of the first message is a byte 0.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as sf

MAGIC = "00"
HEADER = 5
NO_SCHEMA = 40403
"""The code of a registry for an id that it does not have."""


class Registry:
    """What a pipeline asks a registry: two requests of the interface that Confluent's, Karapace and Apicurio have."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._schemas: dict[int, str] = {}

    def schema(self, schema_id: int) -> str | None:
        """Ids are given once and for good, so each is asked for once; None: there is none.  Raises OSError."""
        if schema_id not in self._schemas:
            found = self._ask(f"/schemas/ids/{schema_id}", error=NO_SCHEMA)
            if found is None:
                return None
            self._schemas[schema_id] = found["schema"]
        return self._schemas[schema_id]

    def register(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        """The id of a schema, a new one if the subject does not have it.  Raises OSError, also if it does not fit."""
        return int(self._ask(f"/subjects/{subject}/versions", {"schema": schema, "schemaType": kind})["id"])

    def _ask(self, path: str, body: Any = None, error: int | None = None) -> Any:
        """What is answered; None if that is this error.  Raises OSError."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            # Another server at a wrong address says 404, too, and then nothing is to be refused.
            if error is None or _code(refused.read()) != error:
                raise
            return None


def _code(answer: bytes) -> Any:
    try:
        return json.loads(answer)["error_code"]
    except (ValueError, TypeError, KeyError):
        return None


def schema_id(value: Column) -> Column:
    """The id that a framed value names; null for a value that is not framed, or whose id is none (from 2^31 on)."""
    number = sf.conv(sf.hex(sf.substring(value, 2, 4)), 16, 10).try_cast("int")
    return sf.when((sf.length(value) > HEADER) & (sf.hex(sf.substring(value, 1, 1)) == MAGIC), number)


def body(value: Column) -> Column:
    """What is behind the frame."""
    return value.substr(sf.lit(HEADER + 1), sf.length(value))


def framed(number: int, encoded: Column) -> Column:
    """A body under the id of its schema."""
    return sf.concat(sf.unhex(sf.lit(f"{MAGIC}{number:08x}")), encoded)
