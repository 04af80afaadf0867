"""`fencepost serve --metrics`: the metrics of the node over HTTP, for Prometheus to read.

Names are those of the beans, put together as people do it for Apache Kafka: domain, type, name and attribute, in lower
case, with _ for what a name may not have in every version of Prometheus.  The other keys of a bean are labels.
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from prometheus_client.metrics_core import Metric, UnknownMetricFamily

from fencepost.broker.metric_docs import MEANING
from fencepost.broker.metrics import measure
from fencepost.node_log import get_logger

if TYPE_CHECKING:
    from fencepost.broker import Broker

logger = get_logger(__name__)

_PATIENCE = 10
"""Seconds that a request waits for the node's event loop, and the server for a reader."""

_App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Request(WSGIRequestHandler):
    """The handler of one request.  A reader's errors are not logged: the library would write a traceback each time."""

    timeout = _PATIENCE

    def handle(self) -> None:
        with suppress(OSError):  # he is gone, or too slow
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Does nothing: requests are not logged."""

    def get_stderr(self) -> io.StringIO:
        """A stream whose text is dropped: `_answered` logs an error of the node."""
        return io.StringIO()


def _unanswered(request: object, client_address: object) -> None:  # noqa: ARG001
    """Log why a request has no answer, as that no thread can be started.  The library would write a traceback."""
    logger.warning("a reader of metrics gets no answer: %s", sys.exception())


def _answered(app: _App) -> _App:
    """The same WSGI application, but if it raises it answers 503, and the error is logged."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            return app(environ, start_response)
        except Exception:
            logger.exception("what the node measures could not be told")
            start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
            return [b"what the node measures could not be told; its log says why\n"]

    return answer


def _too_early(_: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
    return [b"the node has not started yet\n"]


class Exporter:
    """Answers GET /metrics on a port of its own until it is closed, with 503 before `tell_of`.

    Raises OSError if it cannot have the port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self._server, self._thread = start_http_server(port, host, CollectorRegistry())
        self._server.RequestHandlerClass = _Request
        self._server.handle_error = _unanswered  # type: ignore[method-assign]
        self._server.set_app(_too_early)
        self.port: int = self._server.server_port

    def tell_of(self, broker: Broker) -> None:
        """Answer with the metrics of this node, which has started in the running loop."""
        registry = CollectorRegistry()
        registry.register(Measurements(broker, asyncio.get_running_loop()))
        self._server.set_app(_answered(make_wsgi_app(registry)))

    def close(self) -> None:
        """Answer no more.  Blocks, and must not block the node's event loop: an answer may be waiting for it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Measurements:
    """The metrics of a node in this event loop, as a collector that Prometheus calls in another thread."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker = broker
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        """The metrics.  Called in the server's thread; the node is read in its own.  Raises TimeoutError after 10 s."""
        measured = asyncio.run_coroutine_threadsafe(self._measure(), self._loop).result(_PATIENCE)
        families: dict[str, UnknownMetricFamily] = {}
        for bean, value in measured.items():
            name, labels, whole = exported(bean)
            if name not in families:
                families[name] = UnknownMetricFamily(name, f"{MEANING[whole]} ({whole})", labels=list(labels))
            families[name].add_metric(list(labels.values()), value)
        yield from families.values()

    async def _measure(self) -> dict[str, float]:
        return measure(self._broker.node, self._broker.node.clock.now())


class Exported(NamedTuple):
    """One attribute of a bean, as Prometheus has it."""

    name: str
    labels: Mapping[str, str]
    whole: str
    """The bean without the keys that became labels, and the attribute: a key of `MEANING`."""


def exported(bean: str) -> Exported:
    """The name and labels for `domain:type=...,name=...,more=...:attribute`, whose `name` may be left out."""
    domain, keys, attribute = bean.split(":")
    labels = dict(key.split("=", 1) for key in keys.split(","))
    named = {key: labels.pop(key) for key in ("type", "name") if key in labels}
    name = re.sub(r"[^a-z0-9_]", "_", "_".join((domain, *named.values(), attribute)).lower())
    kept = ",".join(f"{key}={value}" for key, value in named.items())
    return Exported(name, labels, f"{domain}:{kept}:{attribute}")
