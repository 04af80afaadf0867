"""A crash at every single write of a few transactions, enumerated: journal, markers, data, checkpoints alike."""

from __future__ import annotations

import pytest

from fencepost.simulation.crashes import crash_at_write


@pytest.mark.parametrize(
    ("level", "power_loss"),
    [
        (2, False),
        (2, True),
        (1, True),
        # The levels before 2 write the same entries; a kill loses less than a power cut.
        pytest.param(1, False, marks=pytest.mark.soak),
        pytest.param(0, False, marks=pytest.mark.soak),
        pytest.param(0, True, marks=pytest.mark.soak),
    ],
)
def test_no_write_is_a_bad_moment(level: int, power_loss: bool) -> None:
    operation, committed = 1, 0
    while (report := crash_at_write(operation, power_loss=power_loss, transaction_version=level)) is not None:
        assert report.faults == [], f"crash at write {operation}"
        operation, committed = operation + 1, committed + report.committed
    assert operation > 20, "a few transactions take more writes than that"
    assert committed > operation, "most of them go through in spite of it"
