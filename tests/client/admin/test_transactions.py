"""Every broker is asked for transactions with all filters that were given."""

from __future__ import annotations

from tests.client.admin.nodes import Nodes, play

from fencepost.protocol.messages import ListTransactionsRequest, ListTransactionsResponse


def test_every_filter_is_sent_to_every_broker() -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.answer = lambda *_: ListTransactionsResponse(
            error_code=0, unknown_state_filters=[], transaction_states=[]
        )
        async with nodes.admin() as admin:
            await admin.list_transactions(
                ["Ongoing", "PrepareAbort"], producer_ids=[7, 8], running_longer_than_ms=900, pattern="pay.*"
            )
            await admin.list_transactions(running_longer_than_ms=0)
            await admin.list_transactions()
        asked = nodes.requests(ListTransactionsRequest)
        assert sorted(node for node, _ in asked) == [node for node in range(3) for _ in range(3)]
        filters = [
            (
                request.state_filters,
                request.producer_id_filters,
                request.duration_filter,
                request.transactional_id_pattern,
            )
            for _, request in asked
        ]
        whole = (["Ongoing", "PrepareAbort"], [7, 8], 900, "pay.*")
        assert filters == [whole] * 3 + [([], [], 0, None)] * 3 + [([], [], -1, None)] * 3

    play(scenario)
