"""The page of a history has everything that happened, opens without a network, and shows where a promise was broken."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fencepost.protocol.types import NO_PRODUCER, Epoch, Lsn, ProducerId
from fencepost.simulation.history.events import (
    Answer,
    Append,
    Arrival,
    Batch,
    Event,
    Failure,
    Loss,
    NodeChange,
    Note,
    Request,
    Return,
    Run,
    Transition,
    Trouble,
)
from fencepost.simulation.history.page import drawing, of
from fencepost.simulation.history.places import places

HOSTILE = "</script><img src=x onerror=alert(1)>"


def batch(value: str, producer_id: int = 7, partition: str = "left-0") -> Batch:
    return Batch(partition, ProducerId(producer_id), Epoch(0), 0, 1, True, (value,))


def request(
    time: int,
    exchange: int,
    client: str,
    transactional_id: str = "",
    partitions: tuple[str, ...] = (),
    batches: tuple[Batch, ...] = (),
) -> Request:
    asked = (client, 1, "Produce", 12, exchange, transactional_id)
    return Request(time, exchange, *asked, *NO_PRODUCER, "", partitions, batches, "")


STORY: Sequence[Event] = [
    Run(5, 1_000_000, "fencepost simulate --seed 5", ("level=2",)),
    NodeChange(0, "started", 1),
    request(10, 1, "producer-0-0", "producer-0", batches=(batch("producer-0-0-0"),)),
    Arrival(20, 1),
    Transition(30, "producer-0", "Empty", "Ongoing", ProducerId(7), Epoch(0), ("left-0",), Lsn(1)),
    Append(30, batch("producer-0-0-0"), 0, 0, "", Lsn(2)),
    Answer(40, 1, (), *NO_PRODUCER, ("left-0: base_offset 0",), (), ""),
    Return(50, 1),
    Trouble(60, "power lost", False),
    NodeChange(60, "power lost", 1),
    request(65, 2, "reader-0-3", partitions=("right-1",)),
    Loss(70, 2, "request"),
    Trouble(80, "power lost", True),
    NodeChange(80, "started", 2),
    request(85, 3, "reader-0-4"),
    Arrival(86, 3),
    Answer(87, 3, ("right-1: NOT_LEADER_OR_FOLLOWER",), *NO_PRODUCER, (), (), ""),
    Loss(88, 3, "answer"),
    Note(90, HOSTILE),
    Note(91, "producer-0-0 committed"),
    Failure(
        95,
        "_ of the committed transaction _ is lost",
        "producer-0-0-0 of the committed transaction producer-0-0 is lost",
    ),
]


def test_everybody_has_a_lane_in_the_order_of_the_way() -> None:
    assert drawing(STORY)["lanes"] == ["run", "producer-0", "reader-0", "node", "coordinator", "left-0"]


def test_every_event_is_a_row() -> None:
    drawn = drawing(STORY)
    assert [row["kind"] for row in drawn["rows"]] == [type(event).__name__ for event in STORY]
    assert all(0 <= row["lane"] < len(drawn["lanes"]) for row in drawn["rows"])


def test_a_few_words_stand_beside_each_dot() -> None:
    labels = [row["label"] for row in drawing(STORY)["rows"]]
    assert labels[2:8] == ["Produce #1", "", "producer-0 Empty -> Ongoing", "@0 7/0", "", ""]
    assert labels[16:18] == ["right-1: NOT_LEADER_OR_FOLLOWER", "#3 lost"]


def test_arrows_go_from_request_to_answer_and_the_lost_ones_are_told_apart() -> None:
    assert drawing(STORY)["arrows"] == [
        [2, 3, "request"],
        [6, 7, "answer"],
        [10, 11, "lost request"],
        [14, 15, "request"],
        [16, 17, "lost answer"],
    ]


def test_trouble_and_the_time_without_a_node_are_spans() -> None:
    drawn = drawing(STORY)
    assert drawn["troubles"] == [[8, 12, "power lost"]]
    assert drawn["down"] == [[9, 13, "power lost"]]


def test_a_node_that_dies_while_it_starts_is_down_from_its_first_end_on() -> None:
    lives = [NodeChange(1, "killed", 1), NodeChange(2, "power lost", 2), NodeChange(3, "started", 3)]
    assert drawing(lives)["down"] == [[0, 2, "killed"]]
    assert drawing(lives[:2])["down"] == [[0, 1, "killed"]], "to the end, where it never started"


def rows_with(key: str) -> list[int]:
    return [number for number, row in enumerate(drawing(STORY)["rows"]) if key in row["keys"]]


def test_an_exchange_is_found_whole_by_what_it_is_about() -> None:
    assert rows_with("producer 7") == [2, 3, 4, 5, 6, 7]
    assert rows_with("partition left-0") == [2, 3, 4, 5, 6, 7]
    assert rows_with("partition right-1") == [10, 11]
    assert rows_with("id producer-0") == [2, 3, 4, 5, 6, 7, 19], "its notes as well"


def test_the_place_of_a_failure_is_what_has_to_do_with_it() -> None:
    (failure,) = drawing(STORY)["failures"]
    assert failure["rows"] == [2, 5], "where the record was sent, and where it was written"
    early = Failure(20, "", "producer-0-0-0 is lost")
    assert places(early, STORY) == [2], "what came later is not why"
    nobody = Failure(66, "", "somebody does not end")
    assert places(nobody, STORY) == [10], "the last event before it"
    assert places(nobody, [nobody]) == []


class Parsed(HTMLParser):
    """What is loaded from elsewhere, and the data."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.tags: list[str] = []
        self.data = ""
        self._in_data = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        self._in_data = ("id", "data") in attrs

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data += data
            self._in_data = False


def test_it_needs_nothing_from_elsewhere_and_lets_nothing_out_of_its_data() -> None:
    parsed = Parsed()
    whole = "".join(of(STORY))
    parsed.feed(whole)
    assert parsed.sources == []
    assert "img" not in parsed.tags
    assert not re.search(r"https?:|@import|url\(", whole)
    assert json.loads(parsed.data) == json.loads(json.dumps(drawing(STORY)))
    assert any(row["text"] == HOSTILE for row in json.loads(parsed.data)["rows"])


def test_nothing_at_all_is_a_page_too() -> None:
    assert drawing([])["rows"] == []
    assert "".join(of([])).rstrip().endswith("</html>")


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


def shown_by_a_browser(folder: Path, events: Sequence[Event]) -> str:
    """The page as it is when its script has run."""
    page = folder / "page.html"
    page.write_text("".join(of(events)))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
    command = [str(BROWSER), *options, "--virtual-time-budget=2000", "--window-size=1200,800", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome is there to open the page with")
def test_a_browser_draws_what_is_in_sight_and_goes_to_the_failure(tmp_path: Path) -> None:
    before = 30_000
    many = [STORY[0], *(Note(0, f"note {n}") for n in range(before)), *STORY[1:]]
    dom = shown_by_a_browser(tmp_path, many)
    assert f'data-rows="{len(many)}"' in dom
    drawn = dom.count('data-row="')
    assert 20 < drawn < 120, "of 30,000 events only what is in sight"
    place = f'<g class="row marked chosen" data-row="{5 + before}">'
    assert place in dom, "the failure is marked and in sight"
    assert 'data-kind="lost answer"' in dom and 'data-kind="request"' in dom
    assert 'class="trouble"' in dom and 'class="down"' in dom
    assert "Seed 5: broken" in dom
    assert "onerror=alert(1)&gt;" in dom and "<img" not in dom
