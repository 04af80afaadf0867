"""A transaction right after another waits a little for the markers, where that makes both shorter."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import islice, repeat
from statistics import mean

import pytest

from fencepost.client.completion_pause import LEADER_BACKOFF, CompletionPause

_APPEND = 0.001
"""Seconds of every request that is not put off."""


def transactions(markers: Iterator[float], between: float = 0.0) -> Iterator[tuple[float, float]]:
    """Transactions, each of one record and begun as long as `between` after the last: its pause, and all it takes.

    Their markers are written as many seconds after EndTxn is answered as `markers` says.
    """
    pause, now = CompletionPause(), 0.0
    for takes in markers:
        pause.ended(now, _APPEND)
        waits = pause.begin(now + between)
        early = takes - between - waits
        took = _APPEND + (math.ceil(early / LEADER_BACKOFF) * LEADER_BACKOFF if early > 0 else 0.0)
        pause.answered(took, LEADER_BACKOFF)
        pause.answered(1.0, LEADER_BACKOFF)  # only the first request of a transaction is put off
        now += between + waits + took + _APPEND
        yield waits, waits + took


def settled(markers: Iterator[float], between: float = 0.0) -> list[tuple[float, float]]:
    return list(islice(transactions(markers, between), 1000, 3000))


@pytest.mark.parametrize("milliseconds", [0.3, 1, 2, 3, 5])
def test_transactions_are_put_off_seldom_where_markers_take_a_little(milliseconds: float) -> None:
    each = settled(repeat(milliseconds / 1000))
    assert mean(total for _, total in each) < _APPEND + 2 * milliseconds / 1000 + 0.001
    assert sum(total > LEADER_BACKOFF for _, total in each) < len(each) / 20


def test_so_they_are_where_it_is_a_matter_of_luck() -> None:
    luck = random.Random(1)
    each = settled(luck.expovariate(2000) for _ in repeat(None))
    assert mean(total for _, total in each) < LEADER_BACKOFF / 5


def test_nobody_waits_where_markers_are_there_at_once() -> None:
    assert all(waits == 0 for waits, _ in settled(repeat(0.0)))


def test_nobody_waits_whose_transactions_are_apart_anyway() -> None:
    assert all(waits == 0 for waits, _ in settled(repeat(0.002), between=0.003))


def test_it_is_given_up_where_it_does_not_help() -> None:
    each = settled(repeat(0.5))
    assert mean(waits for waits, _ in each) < 0.0002


def test_what_was_needed_once_is_forgotten() -> None:
    each = list(transactions(iter([0.002] * 100 + [0.0] * 500)))
    assert each[99][0] > 0.0
    assert all(waits == 0 for waits, _ in each[-50:])
