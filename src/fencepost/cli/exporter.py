"""`fencepost serve --metrics`: what the node measures, for Prometheus to read.

Names are those of the beans, put together as people do it for Apache Kafka: domain, type, name and attribute, in lower
case.  The other keys of a bean are labels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import Metric, UnknownMetricFamily

from fencepost.broker.metrics import measure

if TYPE_CHECKING:
    from fencepost.broker import Broker

_PATIENCE = 10
"""Seconds that a reader waits for the node's event loop."""


class Exporter:
    """Answers GET /metrics on a port of its own until it is closed.  Raises OSError if it cannot have the port."""

    def __init__(self, broker: Broker, host: str, port: int) -> None:
        self.host = host
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        registry = CollectorRegistry()
        registry.register(self)
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_port

    def collect(self) -> Iterator[Metric]:
        """Called in the server's thread; the node is read in its own."""
        measured = asyncio.run_coroutine_threadsafe(self._measure(), self._loop).result(_PATIENCE)
        families: dict[str, UnknownMetricFamily] = {}
        for bean, value in measured.items():
            name, labels, documentation = exported(bean)
            if name not in families:
                families[name] = UnknownMetricFamily(name, documentation, labels=list(labels))
            families[name].add_metric(list(labels.values()), value)
        yield from families.values()

    async def _measure(self) -> dict[str, float]:
        return measure(self._broker.node, self._broker.node.clock.now())

    def close(self) -> None:
        """Answer no more.  Blocks, and must not block the node's event loop: an answer may be waiting for it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Exported(NamedTuple):
    """One attribute of a bean, as Prometheus has it."""

    name: str
    labels: Mapping[str, str]
    documentation: str


def exported(bean: str) -> Exported:
    """What `domain:type=...,name=...,more=...:attribute` is called, the name being left out or not."""
    domain, keys, attribute = bean.split(":")
    labels = dict(key.split("=", 1) for key in keys.split(","))
    named = {key: labels.pop(key) for key in ("type", "name") if key in labels}
    name = "_".join((domain.replace(".", "_"), *named.values(), attribute)).lower()
    kept = ",".join(f"{key}={value}" for key, value in named.items())
    return Exported(name, labels, f"{domain}:{kept}:{attribute}")
