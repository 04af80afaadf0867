"""Fixed scenarios of the transaction coordinator: shapes of requests, lists, features, what is not served."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.compare.nodes import requests
from tests.compare.nodes.connection import CLOSED
from tests.compare.nodes.twins import FOREIGN, NOBODY, Twins

from fencepost.protocol.messages import (
    ApiVersionsRequest,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    UpdateFeaturesRequest,
)
from fencepost.protocol.messages.update_features import FeatureUpdateKey
from fencepost.protocol.types import ProducerIdAndEpoch

A, B = {"twins-a": [0]}, {"twins-b": [0]}
TRANSACTIONAL = (10, 22, 24, 25, 26, 27, 28, 57, 61, 65, 66)
Scenario = tuple[str, Callable[[], None]]


class Tables:
    """The scenarios; `prefix` keeps their ids apart from all others."""

    def __init__(self, twins: Twins, prefix: str) -> None:
        self.twins, self.prefix = twins, prefix

    def all(self) -> Iterator[Scenario]:
        for version in range(6):
            yield f"shapes of AddPartitionsToTxn v{version}", lambda v=version: self.shapes(v)  # type: ignore[misc]
            yield f"checks of InitProducerId v{version}", lambda v=version: self.claims(v)  # type: ignore[misc]
        for version in range(7):
            yield f"FindCoordinator v{version}", lambda v=version: self.coordinators(v)  # type: ignore[misc]
        for version in range(3):
            yield f"ListTransactions v{version}", lambda v=version: self.lists(v)  # type: ignore[misc]
            yield f"UpdateFeatures v{version}", lambda v=version: self.features(v)  # type: ignore[misc]
        yield "batches of several transactions", self.batches
        yield "DescribeTransactions", self.descriptions
        yield "ApiVersions", self.versions
        for api in TRANSACTIONAL:
            yield f"api {api}, versions that are not served", lambda a=api: self.unserved(a)  # type: ignore[misc]

    def begin(self, name: str) -> ProducerIdAndEpoch:
        """A fresh transactional id."""
        answer = self.twins.ask(requests.init(f"{self.prefix}-{name}"), 4)
        return ProducerIdAndEpoch.of(answer["producer_id"], answer["producer_epoch"])

    # AddPartitionsToTxn

    def shapes(self, version: int) -> None:
        if version < 4:
            self._old_shapes(version)
            return
        for verify in (True, False):
            if self.twins.level == 0 and not verify:
                continue  # listed: a request of version 2 blocks the id in Apache Kafka
            for number, partitions in enumerate(self._partitions()):
                name = f"shape-{version}-{verify}-{number}"
                pair = self.begin(name)
                full = f"{self.prefix}-{name}"
                for given in (
                    pair,
                    ProducerIdAndEpoch.of(FOREIGN, 0),
                    ProducerIdAndEpoch.of(pair.producer_id, 1),
                    NOBODY,
                ):
                    self.twins.ask(requests.batched(requests.one(full, given, partitions, verify)), version)
                self.twins.describe(full)

    def _old_shapes(self, version: int) -> None:
        for number, partitions in enumerate(self._partitions()):
            name = f"{self.prefix}-shape-{version}-{number}"
            pair = self.begin(f"shape-{version}-{number}")
            for given in (pair, ProducerIdAndEpoch.of(FOREIGN, 0), ProducerIdAndEpoch.of(pair.producer_id, 1), NOBODY):
                self.twins.ask(requests.add(name, given, partitions), version)
                self.twins.describe(name)
            for other in ("", f"{self.prefix}-nobody's"):
                self.twins.ask(requests.add(other, pair, partitions), version)

    def _partitions(self) -> list[dict[str, list[int]]]:
        unknown, internal = {"twins-unknown": [0, 1]}, {"__consumer_offsets": [3], "__transaction_state": [0]}
        return [
            A,
            {"twins-a": [1, 0], "twins-b": [0]},
            A | unknown,
            A | internal,
            A | unknown | internal,
            {"twins-a": [0, 9, -1]},
            {"twins-a": [0, 0]},
            {"twins-a": []},
            {"": [0]},
            {"no such/name": [0]},
            {"__transaction_state": [99]},
            {},
        ]

    def batches(self) -> None:
        """Several transactions at once, some of them wrong."""
        names = [f"{self.prefix}-batch-{number}" for number in range(3)]
        pairs = [self.begin(f"batch-{number}") for number in range(3)]
        for name, pair in zip(names, pairs, strict=True):
            self.twins.ask(requests.add(name, pair, A), 3)
        for version in (4, 5):
            for verify in ((True, True, True), (True, False, True), (False, False, True)):
                if self.twins.level == 0 and not all(verify):
                    continue
                parts = (A, A | B, {"twins-unknown": [0]} | A)
                each = [
                    requests.one(*one)
                    for one in zip(
                        names,
                        [pairs[0], ProducerIdAndEpoch.of(pairs[1].producer_id, 4), pairs[2]],
                        parts,
                        verify,
                        strict=True,
                    )
                ]
                lost = requests.one(f"{self.prefix}-lost", pairs[0], A, True)
                self.twins.ask(requests.batched(*each, lost, requests.one("", pairs[0], A, True)), version)
                self.twins.ask(requests.batched(*reversed(each)), version)
                self.twins.describe(*names)

    # InitProducerId

    def claims(self, version: int) -> None:
        """What is wrong with the request itself."""
        ask = self.twins.ask
        halves = [
            ProducerIdAndEpoch.of(7, -1),
            ProducerIdAndEpoch.of(-1, 7),
            ProducerIdAndEpoch.of(-1, 0),
            ProducerIdAndEpoch.of(7, 7),
            ProducerIdAndEpoch.of(-2, -2),
            ProducerIdAndEpoch.of(7, -2),
        ]
        for pair in [NOBODY, *(halves if version >= 3 else [])]:
            for timeout in (60_000, 0, -1, 900_000, 900_001, 2**31 - 1):
                ask(requests.init(None, pair, timeout), version)
                ask(requests.init("", pair, timeout), version)
                name = f"{self.prefix}-claim-{version}-{pair.producer_id}-{pair.producer_epoch}-{timeout}"
                for given in (pair, pair, NOBODY):
                    ask(requests.init(name, given, timeout), version)
                    self.twins.describe(name)
        for size in (249, 255, 1000, 16_000):
            name = (f"{self.prefix}-{version}-" + "x" * size)[:size]
            ask(requests.init(name), version)
            self.twins.describe(name)
        for odd in ("with space", "é" * 20, "\U0001f600", "a/b:c*", "\x00"):
            ask(requests.init(f"{self.prefix}-{version}-{odd}"), version)
            self.twins.describe(f"{self.prefix}-{version}-{odd}")

    # Finding and listing

    def coordinators(self, version: int) -> None:
        kinds = (0, 1, 2, 3, -1) if version >= 1 else (0,)
        for kind in kinds:
            if kind == 2 and version == 6:
                continue  # share groups are not supported here
            for keys in ([f"{self.prefix}-any"], [""], ["a", "", "b", "a"], []):
                key = keys[0] if keys else ""
                request = FindCoordinatorRequest(key_type=kind, key=key, coordinator_keys=keys)
                self.twins.ask(request, version)

    def lists(self, version: int) -> None:
        """Filters, over ids in several states."""
        names = [f"{self.prefix}-list{version}-{number}" for number in range(4)]
        pairs = [self.begin(f"list{version}-{number}") for number in range(4)]
        for number in (1, 2, 3):
            self.twins.ask(requests.add(names[number], pairs[number], A | B), 3)
        self.twins.ask(requests.end(names[2], pairs[2], True), 4)
        self.twins.ask(requests.end(names[3], pairs[3], False), 4)
        self.twins.describe(*names)
        producers = [pair.producer_id for pair in pairs]
        states = (["Ongoing"], ["Empty", "CompleteCommit"], ["ongoing"], ["Nothing", "CompleteAbort"], ["", "Dead"])
        for filtered in ([], *states, ["PrepareEpochFence", "PrepareCommit"], ["Nothing", "Nothing"]):
            for some in (producers, producers[:2], [producers[1], FOREIGN], [-1]):
                self.twins.ask(requests.listing(filtered, some), version)
                if version >= 1:
                    for duration in (0, -5, 3_600_000, 2**62):
                        self.twins.ask(requests.listing(filtered, some, duration), version)
        if version < 2:
            return
        patterns = [
            f"{self.prefix}-list2-.*",
            ".*-list2-[12]",
            "list2",
            f"{self.prefix}-list2-0",
            "",
            None,
            "[",
            "(",
            "*",
            "a{2",
        ]
        for pattern in [*patterns, "\\d+", "(?i).*LIST2-0", ".*\\Qlist2\\E.*", "(?<n>.*)-0"]:
            self.twins.ask(requests.listing([], producers, pattern=pattern), version)

    def descriptions(self) -> None:
        """Several ids, unknown ones, the same one twice."""
        pair = self.begin("described")
        name = f"{self.prefix}-described"
        self.twins.ask(requests.add(name, pair, A | B), 3)
        for names in ([], [name], [name, name], [""], ["", "", name], [f"{self.prefix}-who", name]):
            self.twins.ask(DescribeTransactionsRequest(transactional_ids=names), 0)

    # Versions and features

    def versions(self) -> None:
        """What is advertised for transactions, at every level."""
        was = self.twins.level
        try:
            for level in (2, 1, 0, 1, 2):
                self.twins.set_level(level)
                for version in range(5):
                    self._advertised(version)
        finally:
            self.twins.set_level(was)

    def _advertised(self, version: int) -> None:
        def of(answer: object) -> dict[str, object]:
            assert isinstance(answer, dict)
            apis = {key["api_key"]: key for key in answer["api_keys"] if key["api_key"] in TRANSACTIONAL}
            names = ("supported_features", "finalized_features")
            features = {
                name: [one for one in answer.get(name, []) if one["name"] == "transaction.version"] for name in names
            }
            apis[28] = apis[28] | {"max_version": 5}  # listed: v6 is served here
            return {"apis": apis, "error": answer["error_code"]} | features

        request = ApiVersionsRequest(client_software_name="twins", client_software_version="1")
        self.twins.agreed(request, version, of)

    def features(self, version: int) -> None:
        """Every kind of change."""
        was = self.twins.level
        try:
            for start in (2, 1, 0):
                self.twins.set_level(start)
                for level in (0, 1, 2, 3, -1):
                    for kind in (0, 1, 2, 3, 4) if version else (0, 1):
                        for only in (True, False) if version else (False,):
                            self._change(version, level, kind, only)
                            self.twins.set_level(start)
            for name in ("", "no.such.feature"):
                self._change(version, 1, 1, False, name)
            both = [self._update("transaction.version", 1, 3), self._update("no.such.feature", 1, 1)]
            self.twins.ask(UpdateFeaturesRequest(feature_updates=both), version)
            self.twins.ask(UpdateFeaturesRequest(feature_updates=[both[0], both[0]]), version)
            self.twins.ask(UpdateFeaturesRequest(feature_updates=[]), version)
        finally:
            self.twins.set_level(was)

    def _update(self, name: str, level: int, kind: int) -> FeatureUpdateKey:
        return FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind == 1)

    def _change(self, version: int, level: int, kind: int, only: bool, name: str = "transaction.version") -> None:
        update = self._update(name, level, kind)
        self.twins.ask(UpdateFeaturesRequest(feature_updates=[update], validate_only=only), version)
        self._advertised(4)

    def unserved(self, api: int) -> None:
        """A version that is not advertised ends the connection."""
        for version in (-1, 7, 8, 30, 32767):
            if (api, version) != (10, -1):
                assert self.twins.ask_raw(api, version, bytes(64)) == CLOSED
