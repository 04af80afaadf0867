"""What a new topic may be called beside those that there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.metadata.topic_rules import INTERNAL, TopicRefused, check_name, topic_name_error
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
