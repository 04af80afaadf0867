"""What comes again and again is written once a minute, and then with how often it came."""

from __future__ import annotations

from fencepost.client.seldom import SAID_AGAIN_AFTER, Seldom


def test_what_comes_every_second_is_said_once_a_minute_with_how_often_it_was_left_out() -> None:
    seldom = Seldom()
    said = {second: end for second in range(150) if (end := seldom.due(second)) is not None}
    more = " (and 59 times since this was last said)"
    assert said == {0: "", 60: more, 120: more}


def test_what_comes_seldom_is_said_each_time() -> None:
    seldom = Seldom()
    assert [seldom.due(n * SAID_AGAIN_AFTER) for n in range(3)] == ["", "", ""]
