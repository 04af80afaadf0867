"""Ids of members fit into what sends and stores them."""

from __future__ import annotations

import random

import pytest

from fencepost.coordinator.group.member_ids import has_room, new_member_id
from fencepost.protocol.decoding import LONGEST_STRING


@pytest.mark.parametrize("letter", ["a", "\u00e9"])
@pytest.mark.parametrize("spare", [-2, -1, 0, 1, 100, LONGEST_STRING - 33])
def test_there_is_room_for_an_id_that_is_no_longer_than_a_text_may_be(letter: str, spare: int) -> None:
    prefix = "x" * ((LONGEST_STRING - 33 - spare) % 2)
    prefix += letter * ((LONGEST_STRING - 33 - spare - len(prefix)) // len(letter.encode()))
    longest = len(new_member_id(prefix, random.Random(1)).encode())
    assert longest == LONGEST_STRING - spare
    assert has_room(prefix) is (longest <= LONGEST_STRING)
