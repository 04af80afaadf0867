"""Checkers of what producers were told against what readers are shown."""

from __future__ import annotations

from typing import Final

from fencepost.simulation.checkers.transactions.aborted_shown import aborted_shown
from fencepost.simulation.checkers.transactions.doubled import doubled
from fencepost.simulation.checkers.transactions.invented import invented
from fencepost.simulation.checkers.transactions.lost import lost
from fencepost.simulation.checkers.transactions.out_of_order import out_of_order
from fencepost.simulation.checkers.transactions.shown import Shown
from fencepost.simulation.checkers.transactions.torn import torn
from fencepost.simulation.workload import Outcomes

CHECKERS: Final = (lost, doubled, aborted_shown, torn, out_of_order, invented)
#: What holds for whoever has read a part only.
OF_A_PART: Final = (doubled, aborted_shown, out_of_order, invented)
#: What holds even for whoever reads records of any transaction.
OF_ANY: Final = (doubled, out_of_order, invented)


def check_part(outcomes: Outcomes, shown: Shown) -> list[str]:
    """The promises that are broken to a reader who stopped somewhere while others went on, in sentences."""
    return [fault for checker in OF_A_PART for fault in checker(outcomes, shown)]


def check_uncommitted(outcomes: Outcomes, shown: Shown) -> list[str]:
    """The promises that are broken to a reader of uncommitted records who stopped somewhere, in sentences."""
    return [fault for checker in OF_ANY for fault in checker(outcomes, shown)]


def check(outcomes: Outcomes, shown: Shown) -> list[str]:
    """The promises that are broken to a reader of committed records who read to the end, in sentences."""
    return [fault for checker in CHECKERS for fault in checker(outcomes, shown)]
