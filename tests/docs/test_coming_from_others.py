"""What the page for users of other clients says of those: the names are there, and the defaults are these."""

from __future__ import annotations

import inspect
from typing import Any, Final

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from tests.docs.reading import ROOT

from fencepost.client import Consumer, Producer

_TEXT: Final = (ROOT / "docs" / "coming_from_others.md").read_text()
#: Library -> its producer and its consumer, in the order of the columns.
THEIRS: Final[dict[str, dict[type, Any]]] = {
    "aiokafka": {Producer: AIOKafkaProducer, Consumer: AIOKafkaConsumer},
    "kafka-python": {Producer: kafka.KafkaProducer, Consumer: kafka.KafkaConsumer},
    "confluent-kafka": {Producer: confluent_kafka.Producer, Consumer: confluent_kafka.Consumer},
}


def rows(heading: str) -> list[list[str]]:
    """Cells of the table below a heading, its first row first."""
    section = _TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return [found[0], *found[2:]]


NAMES: Final = rows("Names")[1:]
DEFAULTS: Final = rows("Defaults")[1:]


def test_the_columns_are_of_these_libraries() -> None:
    assert rows("Names")[0] == ["here", *THEIRS]
    assert ["here", *THEIRS][:3] == rows("Defaults")[0]


@pytest.mark.parametrize("row", NAMES, ids=lambda row: str(row[0]))
def test_a_call_is_there_under_the_name_of_each(row: list[str]) -> None:
    ours, *others = row
    kind, name = ours.strip("`").split(".")
    ours_by_name: dict[str, type] = {"Producer": Producer, "Consumer": Consumer}
    assert hasattr(ours_by_name[kind], name)
    for theirs, called in zip(THEIRS.values(), others, strict=True):
        assert not called or hasattr(theirs[ours_by_name[kind]], called)


def defaults(of: Any) -> dict[str, Any]:
    """Of the settings of a client."""
    if hasattr(of, "DEFAULT_CONFIG"):
        return dict(of.DEFAULT_CONFIG)
    return {name: given.default for name, given in inspect.signature(of).parameters.items()}


@pytest.mark.parametrize("row", DEFAULTS, ids=lambda row: str(row[0]))
def test_a_default_is_what_it_is_where_nothing_is_said(row: list[str]) -> None:
    cells = [cell.replace("`", "").split(": ") for cell in row]
    kind = Producer if cells[0][0] in defaults(Producer) and cells[0][0] != "request_timeout_ms" else Consumer
    for of, (name, value) in zip((kind, *(each[kind] for each in list(THEIRS.values())[:2])), cells, strict=True):
        assert str(defaults(of)[name]) == value
