"""What is damaged is said once, and not of everything there is."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fencepost.log.damage import MOST_FILES, DamageNotes, FileDamaged, not_written
from fencepost.protocol.errors import ErrorCode

AT = Path("/data/t-0")


def test_each_damaged_file_is_told_once_and_only_so_many(caplog: pytest.LogCaptureFixture) -> None:
    notes = DamageNotes()
    for _ in range(2):
        for number in range(MOST_FILES + 5):
            notes.say(FileDamaged(AT / f"{number}.log", "is damaged"))
    assert len(caplog.messages) == MOST_FILES
    for number, line in enumerate(caplog.messages):
        assert f"{AT}/{number}.log is damaged" in line


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileDamaged(AT / "1.index", "is damaged"), f"{AT}/1.index is damaged"),
        (OSError(errno.EIO, "Input/output error"), f"{AT} does not take a write: Input/output error"),
    ],
)
def test_what_a_file_does_not_let_be_done_is_said_and_not_done(
    error: FileDamaged | OSError, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> bool:
        raise error

    notes = DamageNotes()
    assert notes.manages(AT, lambda: True) and caplog.messages == []
    for _ in range(2):
        assert not notes.manages(AT, fail)
    (line,) = caplog.messages
    assert line.endswith(said)
    assert str(not_written(AT, error)) == said


def test_a_write_that_met_damage_may_be_tried_again() -> None:
    """CORRUPT_MESSAGE would say to a producer that its own batch is damaged."""
    met = FileDamaged(AT / "1.log", "is damaged", ErrorCode.CORRUPT_MESSAGE)
    refused = not_written(AT, met)
    assert (refused.error, refused.path, str(refused)) == (ErrorCode.KAFKA_STORAGE_ERROR, met.path, str(met))


def test_what_is_no_matter_of_a_file_goes_on_up() -> None:
    def fail() -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        DamageNotes().manages(AT, fail)
