"""The Python clients come out of a time-out as docs/reference/transactions/clients_after_a_timeout.md says."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from stock_clients.page import NOT_RUN, PAGE, TARGETS, Section, on_page, read, write
from stock_clients.python_clients import LOGGERS, PYTHON_CLIENTS, quiet
from stock_clients.scenario import CALLS, Target, fencepost, play


@pytest.fixture(scope="module", params=[2, 1], ids=["transaction.version-2", "transaction.version-1"])
def peer(request: pytest.FixtureRequest) -> Iterator[tuple[int, Target]]:
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    quiet()
    with fencepost(request.param) as target:
        yield request.param, target
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.promise("588.older-clients")
@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_a_python_client_goes_on_or_is_rebuilt_as_the_page_says(client: str, peer: tuple[int, Target]) -> None:
    level, target = peer
    section = on_page()[client]
    assert play(PYTHON_CLIENTS[client], target) == {call: section.cells[("fencepost", level), call] for call in CALLS}


def test_fenceposts_own_client_always_goes_on_on_fencepost() -> None:
    cells = on_page()["fencepost"].cells
    assert [cells[("fencepost", level), call].split(";")[0] for level in (2, 1) for call in CALLS] == ["goes on"] * 10


def test_no_client_was_seen_to_lose_or_leak_a_record() -> None:
    verdicts = {cell.split(";")[0] for section in on_page().values() for cell in section.cells.values()}
    assert verdicts <= {"goes on", "rebuild", NOT_RUN}


def test_the_page_is_what_is_written_of_its_own_rows() -> None:
    assert write(list(on_page().values())) == PAGE.read_text()


def test_rows_that_were_not_run_say_so() -> None:
    kept = Section("kafkajs", "2.2.4", kept="node is not on the PATH")
    kept.take(("kafka", 2), dict.fromkeys(CALLS, "goes on; commit: Something"))
    page = write([kept])
    assert "Kept from an earlier run: node is not on the PATH." in page
    assert page.count(NOT_RUN) == (len(TARGETS) - 1) * (len(CALLS) + 1)
    assert read(page)["kafkajs"].cells[("kafka", 2), "commit"] == "goes on; commit: Something"
