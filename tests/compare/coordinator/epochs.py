"""Transactional ids whose epoch is nearly used up, and random walks around the rotation to a fresh producer id."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping

from tests.compare.coordinator.walks import Walk
from tests.compare.nodes import requests
from tests.compare.nodes.twins import FOREIGN, NOBODY, Twins

from fencepost.protocol.codec import decode_response, encode_request
from fencepost.protocol.messages import InitProducerIdResponse
from fencepost.protocol.types import LAST_CLIENT_EPOCH, MAX_PRODUCER_EPOCH, ProducerIdAndEpoch

LAST = LAST_CLIENT_EPOCH
_AT_ONCE = 500
WEIGHTS = {"init": 4, "add": 2, "batched": 2, "produce": 2, "txn_commit": 1, "end": 6, "add_offsets": 1}


def drive(address: str, name: str, epoch: int) -> None:
    """Ask for the next epoch until it is this one, many requests at a time."""
    host, _, port = address.rpartition(":")
    frame = encode_request(requests.init(name, timeout_ms=900_000), 4, 1, "drive")
    with socket.create_connection((host, int(port)), 60) as connection, connection.makefile("rb") as answers:
        reached = -1
        while reached < epoch:
            count = min(_AT_ONCE, epoch - reached)
            connection.sendall(frame * count)
            for _ in range(count):
                data = answers.read(int.from_bytes(answers.read(4), "big"))
                answer: InitProducerIdResponse = decode_response(InitProducerIdResponse, data, 4)[1]
                if not answer.error_code:
                    reached = answer.producer_epoch


class Epochs(Walk):
    """A walk of one id that was driven to some epoch near the last one."""

    def __init__(self, twins: Twins, chance: random.Random, prefix: str, weights: Mapping[str, int] = WEIGHTS) -> None:
        super().__init__(twins, chance, prefix, weights, ids=1)

    def go(self, length: int) -> None:
        for _ in range(2):
            self.look()
        for _ in range(length):
            self.step()

    def pair(self, name: str) -> ProducerIdAndEpoch:
        """Mostly the current pair, the one before, or one at the edge."""
        current = self.current[name]
        if self.chance.random() < 0.6:
            return current
        seen = self.chance.choice(self.seen[name][-4:])
        near = [
            seen,
            ProducerIdAndEpoch.of(seen.producer_id, max(seen.producer_epoch - 1, -1)),
            ProducerIdAndEpoch.of(seen.producer_id, min(seen.producer_epoch + 1, MAX_PRODUCER_EPOCH)),
        ]
        return self.chance.choice(
            [
                *near,
                ProducerIdAndEpoch.of(seen.producer_id, LAST),
                ProducerIdAndEpoch.of(seen.producer_id, MAX_PRODUCER_EPOCH),
                ProducerIdAndEpoch.of(FOREIGN, 0),
            ]
        )

    def _init(self, name: str, version: int) -> None:
        pair = self.pair(name) if version >= 3 and self.chance.random() < 0.7 else NOBODY
        self.twins.ask(requests.init(name, pair, self.timeout_ms), version)
