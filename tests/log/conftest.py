"""What the tests of the log open on the machine's disk is closed with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from fencepost.log.disk import _LocalFile


@pytest.fixture(autouse=True)
def no_file_outlives_its_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process with a thousand descriptors cannot `select` any more, and hundreds of tests after these would fail."""
    opened: list[_LocalFile] = []
    begin = _LocalFile.__init__

    def noted(file: _LocalFile, fd: int, *more: Callable[[int], None]) -> None:
        begin(file, fd, *more)
        opened.append(file)

    monkeypatch.setattr(_LocalFile, "__init__", noted)
    yield
    for file in opened:
        file.close()
