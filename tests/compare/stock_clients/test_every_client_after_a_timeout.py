"""Every client that can be run here comes out of a time-out as the page says, on Fencepost and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stock_clients.programs import PROGRAMS, NoToolChain, program
from stock_clients.python_clients import PYTHON_CLIENTS, quiet
from stock_clients.scenario import CALLS, Target, fencepost, kafka, play
from tests.compare.nodes.two_nodes import skipped_without_kafka

from stock_clients import page

Peer = tuple[page.Target, Target]


@pytest.fixture(scope="module", params=page.TARGETS, ids=lambda target: f"{target[0]}-{target[1]}")
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    broker, level = request.param
    quiet()
    with skipped_without_kafka(), (fencepost if broker == "fencepost" else kafka)(level) as target:
        yield request.param, target


def rows(client: str, peer: Peer) -> dict[str, str]:
    """What the page says of a client on a broker."""
    section = page.on_page()[client]
    return {call: section.cells[peer[0], call] for call in CALLS}


@pytest.mark.compare
@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_a_python_client_comes_out_as_the_page_says(client: str, peer: Peer) -> None:
    assert play(PYTHON_CLIENTS[client], peer[1]) == rows(client, peer)


@pytest.mark.compare
@pytest.mark.parametrize("client", PROGRAMS)
def test_another_client_comes_out_as_the_page_says(client: str, peer: Peer) -> None:
    try:
        with program(client) as producers:
            assert play(producers, peer[1]) == rows(client, peer)
    except NoToolChain as reason:
        pytest.skip(f"{client} cannot be built: {reason}")
