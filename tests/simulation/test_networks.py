"""Each network that clients have in a simulation: what is connected is closed where it cannot be begun with."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from fencepost.broker.network.connection_quotas import ConnectionQuotas
from fencepost.client.errors import UnsupportedByBrokerError
from fencepost.client.opening import open_connection
from fencepost.protocol.codec import encode_response
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ApiVersionsResponse
from fencepost.runtime import Network
from fencepost.simulation.cutting_network import CuttingNetwork
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.network import NamedNetwork
from fencepost.simulation.processes import Process, ProcessLoop
from fencepost.simulation.request_faults import RequestFaults
from fencepost.simulation.world import World

PORT = 1234
NETWORKS: dict[str, Callable[[World], Network]] = {
    "simulated": lambda world: world.network,
    "named": lambda world: NamedNetwork(world.network, "client"),
    "process": lambda world: Process(world, "client"),
    "cutting": lambda world: CuttingNetwork(
        world.network, "client", RequestFaults(random.Random(1), lambda _: None, {}), lambda _: None
    ),
}


class Refusing(asyncio.Protocol):
    """A broker that speaks no version of ApiVersions that is asked with."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:  # noqa: ARG002
        answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
        self._transport.write(encode_response(answer, 3, 1))


@pytest.mark.parametrize(("broker", "told"), [(asyncio.Protocol, None), (Refusing, UnsupportedByBrokerError)])
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_a_connection_is_closed_when_it_is_given_up_or_is_to_no_broker(
    network: Callable[[World], Network], broker: Callable[[], asyncio.Protocol], told: type[Exception] | None
) -> None:
    async def main(loop: VirtualLoop) -> int:
        world = World(loop, 1)
        await world.network.listen(broker, "127.0.0.1", PORT, ConnectionQuotas(9, 9))
        opening = loop.create_task(open_connection(network(world), "127.0.0.1", PORT, "client", 60_000))
        await asyncio.sleep(1)
        if told is None:
            assert len(world.network._pairs) == 2
            opening.cancel()
        with pytest.raises(told or asyncio.CancelledError):
            await opening
        await asyncio.sleep(1)
        return len(world.network._pairs)

    assert run(main, ProcessLoop) == 0
