"""What a new topic may be called beside those that there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.metadata.topic_rules import (
    INTERNAL,
    TopicRefused,
    check_name,
    nothing_left,
    topic_name_error,
    usable,
)
from fencepost.log.disk import DiskFull, NoDescriptors, NothingLeft, Withheld
from fencepost.protocol.errors import ErrorCode

#: with few dots and underscores, and with many
NAMES = st.one_of(st.text("ab._", min_size=1, max_size=6), st.text("a._", min_size=6, max_size=12)).filter(
    lambda name: topic_name_error(name) is None
)


def error(name: str, *known: set[str]) -> ErrorCode | None:
    try:
        check_name(name, known)
    except TopicRefused as refused:
        return refused.error
    return None


@pytest.mark.parametrize("name", ["a", "...", "x" * 249, "A.b_c-9", "-", "_"])
def test_a_name_has_letters_digits_dots_underscores_and_hyphens(name: str) -> None:
    assert topic_name_error(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a\n", "a b", "a/b", "ä", "a:b"])
def test_a_name_with_anything_else_is_none(name: str) -> None:
    """Least of all one that would be another directory than that of its partitions."""
    assert topic_name_error(name) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert error(name) is ErrorCode.INVALID_TOPIC_EXCEPTION


@given(NAMES, st.sets(NAMES, max_size=8), st.sets(NAMES, max_size=3), st.data())
def test_a_name_is_refused_beside_one_that_differs_in_dots_and_underscores_only(
    name: str, there: set[str], coming: set[str], data: st.DataObject
) -> None:
    marks = [place for place, each in enumerate(name) if each in "._"]
    for place in data.draw(st.lists(st.sampled_from(marks), max_size=3)) if marks else ():
        there |= {name[:place] + data.draw(st.sampled_from("._")) + name[place + 1 :]}
    known = there | coming
    alike = name.replace(".", "_") in {each.replace(".", "_") for each in known}
    expected = ErrorCode.INVALID_TOPIC_EXCEPTION if alike else None
    assert error(name, there, coming) == (ErrorCode.TOPIC_ALREADY_EXISTS if name in known else expected)


@pytest.mark.parametrize("name", INTERNAL)
def test_a_topic_of_the_broker_is_made_beside_any_other_one(name: str) -> None:
    assert error(name, {name.replace("_", ".")}) is None


def test_a_stored_setting_that_no_topic_can_have_any_more_is_left_out() -> None:
    stored = {"retention.ms": "an hour", "retention.bytes": "7", "no.such.setting": "1"}
    assert usable("t", stored) == {"retention.bytes": "7"}


@pytest.mark.parametrize("name", INTERNAL)
@pytest.mark.parametrize("stored", [{}, {"cleanup.policy": "delete"}, {"cleanup.policy": "compact,delete"}])
def test_a_topic_of_the_broker_is_compacted_whatever_was_stored(name: str, stored: dict[str, str]) -> None:
    assert usable(name, stored) == {"cleanup.policy": "compact"}
    assert usable("t", stored) == stored


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (DiskFull(), "no space is left on the disk"),
        (Withheld("the metadata are full"), "'t' cannot be written down: the metadata are full"),
        (NoDescriptors("none is left"), "'t' cannot have its files: none is left"),
    ],
)
def test_of_what_is_missing_for_a_change_that_is_named_which_can_be_mended(error: NothingLeft, says: str) -> None:
    assert says in str(nothing_left("t", error))
    assert nothing_left("t", error).error is ErrorCode.KAFKA_STORAGE_ERROR
