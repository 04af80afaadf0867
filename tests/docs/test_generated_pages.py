"""Pages that are made from the code and the tests are what their scripts make; `make pages` writes them anew."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable

import pytest
from kio.schema import index
from scripts.page import DOCS, ROOT, table

from fencepost.broker import running_broker
from fencepost.broker.metadata.setting_docs import MEANING, OTHER_DEFAULTS
from fencepost.broker.metadata.settings import BROKER
from fencepost.broker.metric_docs import MEANING as MEANING_OF_METRICS
from fencepost.broker.metrics import measure
from fencepost.broker.network.registry import SERVED
from fencepost.cli.exporter import exported
from fencepost.client.blocking import Producer
from scripts import apis_page, metrics_page, promises_page

SCRIPTS = [f"scripts.{path.stem}" for path in sorted((ROOT / "scripts").glob("*_page.py"))]
OPERATING = (DOCS / "operating.md").read_text()
MADE = [(name, make) for script in SCRIPTS for name, make in importlib.import_module(script).PAGES.items()]


@pytest.mark.parametrize(("name", "make"), MADE, ids=[name for name, _ in MADE])
def test_a_page_is_what_its_script_makes(name: str, make: Callable[[], str]) -> None:
    assert (DOCS / name).read_text() == make(), f"docs/{name} is out of date: run `make pages`"


def test_every_setting_has_its_sentence_and_no_other() -> None:
    assert list(MEANING) == list(BROKER)
    assert all(meaning.endswith(".") for meaning in MEANING.values())
    assert set(OTHER_DEFAULTS) <= set(BROKER)


def test_every_metric_has_its_sentence_and_no_other() -> None:
    """Those with labels once, whatever the labels are."""
    with running_broker() as node:
        with Producer(node.bootstrap_servers, transactional_id="one") as producer:
            producer.init_transactions()
        measured = {exported(bean).whole: exported(bean) for bean in measure(node.node, node.node.clock.now())}
    assert set(MEANING_OF_METRICS) == set(measured)
    assert {whole: [*found.labels] for whole, found in measured.items() if found.labels} == {
        whole: [label] for whole, label in metrics_page.LABELS.items()
    }
    assert all(meaning.endswith(".") for meaning in MEANING_OF_METRICS.values())
    named = set(re.findall(r"(?:name=|`)([A-Z]\w+(?:Count|Bytes|IsWhole))`", OPERATING))
    assert len(named) >= 4
    assert {name for name in named if not any(f"name={name}:" in whole for whole in measured)} == set()


def test_what_is_missing_has_apache_kafkas_names() -> None:
    names = {key: name for of in apis_page.MISSING.values() for key, name in of.items()}
    assert names == {key: index.api_key_map[key].title().replace("_", "") for key in names}
    assert {key for of in apis_page.missing().values() for key in of} == set(apis_page.of_kafka()) - set(SERVED)


def test_a_promise_is_named_once_and_a_marker_names_a_promise() -> None:
    assert len(promises_page.KNOWN) == sum(map(len, promises_page.DOCUMENTS.values()))
    assert set(promises_page.shown_by()) <= promises_page.KNOWN


def test_a_bar_in_a_cell_is_no_end_of_it() -> None:
    assert table(["a"], [["x | y\nz"]]) == ["| a |", "|---|", r"| x \| y z |"]
