"""Which version of each request a client of ours sends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fencepost.client import connection
from fencepost.protocol.codec import encode_request


@contextmanager
def noted_versions() -> Iterator[dict[str, set[int]]]:
    """Name of a request -> the versions of it that are sent while this lasts, by every client of this process."""
    noted: dict[str, set[int]] = {}

    def encode_and_note(message: Any, version: int, *rest: Any) -> bytes:
        noted.setdefault(type(message).__name__.removesuffix("Request"), set()).add(version)
        return encode_request(message, version, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "encode_request", encode_and_note)
        yield noted
