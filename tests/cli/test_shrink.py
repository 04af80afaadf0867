"""`simulate --shrink`: the test alone is printed, of the shortest plan that breaks the same promise, as it was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from fencepost.cli import Refused
from fencepost.cli.shrink import shrink, shrunk, size_of
from fencepost.simulation.call_faults import Call, CallFault
from fencepost.simulation.cast import Window
from fencepost.simulation.drawn_runs import Circumstances, Plan, Report
from fencepost.simulation.request_faults import RequestFault
from fencepost.simulation.script import BefallenCall, BefallenRequest, End, Happening, Script, Transaction, Write
from fencepost.simulation.workload import Outcomes

SCRIPT = Script((Happening(0.1, "KILLED", 3),))
PLAN = Plan(7, 1.0, Circumstances(), {"single-0": Window(), "single-1": Window(), "single-2": Window()})
#: What is carried out says with which script.
DONE = PLAN._replace(script=SCRIPT)

Faults = Callable[[Plan], list[str]]


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Faults], list[Plan]]:
    """Have plans break what is said of them; those that were carried out, in their order."""

    def broken(faults: Faults) -> list[Plan]:
        tried: list[Plan] = []

        def carried_out(plan: Plan) -> Report:
            tried.append(plan)
            done = plan if plan.script is not None else plan._replace(script=SCRIPT)
            return Report(done, [], faults(plan), Outcomes(), Counter())

        monkeypatch.setattr("fencepost.cli.shrink.carry_out", carried_out)
        return tried

    return broken


def lost(plan: Plan) -> list[str]:
    """Each record of a client is lost, in the words of how many there are."""
    return [f"{len(plan.clients)} is lost"] if plan.clients else []


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    out, told = capsys.readouterr()
    return out, told.splitlines()


def test_the_test_alone_is_printed_and_on_the_way_how_much_is_left(
    breaks: Callable[[Faults], list[Plan]], capsys: pytest.CaptureFixture[str]
) -> None:
    breaks(lost)
    assert shrink(PLAN, "fencepost simulate --seed 7", 500) == 1
    test, told = printed(capsys)
    assert test.startswith('"""Found by\n    fencepost simulate --seed 7\n1 is lost\n"""')
    compile(test, "test.py", "exec")
    assert told[0].endswith(f": {size_of(DONE)}") and "is lost" in told[0]
    assert told[-1].startswith("1 clients, ")


def test_where_no_promise_is_broken_nothing_is_shrunk(breaks: Callable[[Faults], list[Plan]]) -> None:
    tried = breaks(lambda _: [])
    with pytest.raises(Refused, match="with seed 7 no promise is broken"):
        shrink(PLAN, "the command", 500)
    assert tried == [PLAN]


def test_it_is_shrunk_as_it_was_carried_out_by_what_it_was_found_with_first(
    breaks: Callable[[Faults], list[Plan]], capsys: pytest.CaptureFixture[str]
) -> None:
    breaks(lambda plan: [f"{len(plan.clients)} is lost", "7 is doubled"] if plan.clients else ["7 is doubled"])
    assert shrink(PLAN, "the command", 500) == 1
    test, told = printed(capsys)
    assert "test_is_lost" in test and "1 is lost" in test
    assert told[0].partition(": ")[2] == size_of(DONE), "with its script"


def test_what_the_shortest_plan_said_is_told_and_with_the_script_that_it_had(
    breaks: Callable[[Faults], list[Plan]],
) -> None:
    """Whatever was tried after it."""
    breaks(lost)
    found = shrunk(DONE, "3 is lost", "the command", lambda _: None, 500)
    assert len(found.plan.clients) == 1
    assert "\n1 is lost\n" in found.source
    breaks(lambda plan: ["1 is lost"] if plan.clients else [])
    bare = DONE._replace(clients={"single-0": Window()})
    assert shrunk(bare, "1 is lost", "the command", lambda _: None, 500).plan.script is not None


def test_a_plan_that_breaks_another_promise_or_would_rightly_be_refused_is_not_followed(
    breaks: Callable[[Faults], list[Plan]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.cli.shrink.is_sound", lambda plan: "single-1" in plan.clients)
    tried = breaks(lambda plan: ["it is lost"] if "single-2" in plan.clients else ["it is doubled"])
    found = shrunk(DONE, "it is lost", "the command", lambda _: None, 500)
    assert set(found.plan.clients) == {"single-1", "single-2"}
    assert "it is doubled" not in found.source
    assert all("single-1" in plan.clients for plan in tried)


def test_ctrl_c_gives_the_shortest_plan_so_far(breaks: Callable[[Faults], list[Plan]]) -> None:
    def faults(plan: Plan) -> list[str]:
        if len(plan.clients) == 1:
            raise KeyboardInterrupt
        return lost(plan)

    breaks(faults)
    told: list[str] = []
    try:
        found = shrunk(DONE, "3 is lost", "the command", told.append, 500)
    except KeyboardInterrupt:
        pytest.fail("nothing is left of what was found")
    assert told[-1] == "interrupted: this is the shortest plan so far"
    assert len(found.plan.clients) in (2, 3)
    assert f"\n{len(found.plan.clients)} is lost\n" in found.source


def test_not_more_plans_are_tried_than_may_be(breaks: Callable[[Faults], list[Plan]]) -> None:
    for most in (1, 3):
        tried = breaks(lost)
        shrunk(DONE, "3 is lost", "the command", lambda _: None, most)
        assert len(tried) == most


def test_how_much_a_plan_has_counts_all_of_it() -> None:
    full = Plan(
        7,
        0.5,
        Circumstances({"log.cleaner.backoff.ms": 20}, {"segment_bytes": 2000}),
        {"single-0": Window(), "single-1": Window()},
        Script(
            (Happening(0.1, "KILLED", 3),),
            (BefallenRequest(0.1, "single-0", 26, RequestFault.HELD_BACK, 0.1),) * 2,
            (BefallenCall(0.1, Call.MARKER, CallFault.REPEATED, 0.2, 1),) * 4,
            {"single-0": (Transaction(0, 0.1, (Write("left", 0, 0.01),) * 5, End.ABORTS),) * 2},
        ),
    )
    assert size_of(full) == "2 clients, 7 faults, 2 transactions, 10 records, 2 settings, 0.5 s"
    assert size_of(full._replace(script=None)) == "2 clients, 0 faults, 0 transactions, 0 records, 2 settings, 0.5 s"
