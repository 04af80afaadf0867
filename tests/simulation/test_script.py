"""What is drawn in a run can be given to another one, whole or in part."""

from __future__ import annotations

import pytest

from fencepost.simulation.cast import Window
from fencepost.simulation.drawn_runs import Circumstances, Plan, Trouble, carry_out, simulate
from fencepost.simulation.request_faults import RequestFault
from fencepost.simulation.script import End, Happening, Prompter, Script, Transaction, Write, lane


@pytest.mark.parametrize("seed", [0, 2])
def test_a_run_that_is_given_what_another_one_drew_has_its_history(seed: int) -> None:
    drawn = simulate(seed, 0.5)
    given = carry_out(drawn.plan)
    assert given.history == drawn.history
    assert given.plan == drawn.plan
    assert drawn.plan.script is not None and (drawn.plan.script.troubles or drawn.plan.script.requests)


WRITES = (Write("left", 0), Write("right", 2, 0.001))


def told(*transactions: Transaction, **windows: Window) -> list[str]:
    """The history of a run of one producer, without the times."""
    script = Script(transactions={"producer-0": transactions})
    clients = {"producer-0": Window(), **{name.replace("_", "-"): window for name, window in windows.items()}}
    report = carry_out(Plan(1, 0.5, Circumstances(), clients, script))
    assert report.faults == []
    lines = [line.partition(" ")[2] for line in report.history]
    return [line for line in lines if line != "no more faults"]


def test_a_producer_does_what_it_is_given_and_then_nothing() -> None:
    history = told(Transaction(3, 0.1, WRITES), Transaction(7, 0.2, WRITES[:1], End.ABORTS))
    assert history[1:4] == ["producer-0-3 committed", "producer-0-7 aborted", "producer-0-8 committed, the last one"]
    assert [line for line in history if "read" in line and "producer-0-8" not in line] == [
        "read left-0 0 producer-0-3-0",
        "read right-2 0 producer-0-3-1",
    ]


def test_a_producer_without_transactions_does_what_everybody_does_in_the_end() -> None:
    assert told()[1] == "producer-0-0 committed, the last one"


@pytest.mark.parametrize("trouble", Trouble)
def test_trouble_comes_when_it_is_given(trouble: Trouble) -> None:
    script = Script((Happening(0.1, trouble.name, 4),), transactions={"producer-0": (Transaction(0, 0.25, WRITES),)})
    report = carry_out(Plan(1, 0.5, Circumstances(), {"producer-0": Window()}, script))
    assert report.faults == []
    assert report.plan.script == script


def test_what_is_left_of_a_script_happens_as_before() -> None:
    """How far the clock jumps does not follow from what happened before it."""

    def jumps(*troubles: Happening) -> list[str]:
        plan = Plan(1, 0.2, Circumstances(), {}, Script(troubles))
        return [line.partition(" ")[2] for line in carry_out(plan).history if "the clock is off" in line]

    alone = {number: jumps(Happening(0.1, "CLOCK_JUMPS", number)) for number in range(6)}
    assert len({each for (each,) in alone.values()}) > 1
    for number, jump in alone.items():
        assert jumps(Happening(0.05, "POWER_LOST", 9), Happening(0.1, "CLOCK_JUMPS", number)) == jump


def test_a_client_works_in_its_window_only() -> None:
    history = told(single_0=Window(0.1, 0.2))
    again = told(single_0=Window(0.1, 0.3))
    assert 1 < len(history) < len(again)


def test_a_request_is_befallen_at_its_time_or_the_next_of_its_kind_is() -> None:
    drawn = Prompter()
    dice = iter([None, (RequestFault.LOST, 0.0), None, (RequestFault.LATE, 0.3)])
    for now in (1.0, 1.0, 1.0, 2.0):
        drawn.request("producer-0", 0, now, lambda: next(dice))
    script = drawn.script
    assert [(each.time, each.after, each.fault) for each in script.requests] == [
        (1.0, 1, RequestFault.LOST),
        (2.0, 0, RequestFault.LATE),
    ]
    given = Prompter(script)
    found = [given.request("producer-0", 0, now, lambda: pytest.fail("drawn")) for now in (1.0, 1.0, 1.0, 2.0)]
    assert found == [None, script.requests[0], None, script.requests[1]]
    assert given.script == script
    later = Prompter(script)
    assert later.request("producer-1", 0, 1.5, lambda: pytest.fail("drawn")) is None
    assert later.request("producer-0", 26, 1.5, lambda: pytest.fail("drawn")) is None
    assert later.request("producer-0", 0, 1.5, lambda: pytest.fail("drawn")) == script.requests[0]
    assert later.request("producer-0", 0, 1.5, lambda: pytest.fail("drawn")) is None


@pytest.mark.parametrize(
    ("client", "who"),
    [
        ("producer-1-17", "producer-1"),
        ("producer-1", "producer-1"),
        ("members-0.12", "members-0"),
        ("a0.1.0.0.2.3", "a0"),
        ("admin-0.0253125", "admin"),
        ("reader", "reader"),
    ],
)
def test_the_lives_of_a_client_are_in_one_lane(client: str, who: str) -> None:
    assert lane(client) == who
