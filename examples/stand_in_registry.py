"""Stands in for a schema registry where there is none: what `schema_registry.Registry` asks for, in memory.

It looks at no schema, and so refuses none: a real one checks that a new version can be read by who has the old one.

    python examples/stand_in_registry.py 8081
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

NO_SCHEMA: Final = 40403
"""The code of Confluent's registry for an id that it does not have."""
SCHEMAS: Final = "/schemas/ids/"


class Schemas:
    """Schemas by id; the same text and kind is one schema, whatever its subjects."""

    def __init__(self) -> None:
        self._known: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def id_of(self, kind: str, text: str) -> int:
        with self._lock:
            if (kind, text) not in self._known:
                self._known.append((kind, text))
            return self._known.index((kind, text)) + 1

    def of(self, number: int) -> tuple[str, str] | None:
        with self._lock:
            return self._known[number - 1] if 1 <= number <= len(self._known) else None


class Answers(BaseHTTPRequestHandler):
    """`schemas` is given by `registry`."""

    schemas: Schemas

    def do_GET(self) -> None:
        number = self.path.removeprefix(SCHEMAS)
        if number == self.path:
            self._answer(404, {"error_code": 404, "message": "HTTP 404 Not Found"})
            return
        found = self.schemas.of(int(number)) if number.isdecimal() else None
        if found is None:
            self._answer(404, {"error_code": NO_SCHEMA, "message": "Schema not found"})
        else:
            self._answer(200, {"schemaType": found[0], "schema": found[1]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(200, {"id": self.schemas.id_of(body.get("schemaType", "AVRO"), body["schema"])})

    def _answer(self, status: int, found: Any) -> None:
        text = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """No line for each request."""


@contextmanager
def registry(port: int = 0) -> Iterator[str]:
    """One that serves on this machine until the end of the block; its address."""
    server = ThreadingHTTPServer(("127.0.0.1", port), type("OfThisServer", (Answers,), {"schemas": Schemas()}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    with registry(int(sys.argv[1])) as address:
        print(f"serving on {address}", flush=True)
        threading.Event().wait()
