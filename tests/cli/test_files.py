"""Files that a command is given: one to write stays as it was until all is done, one with settings is text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fencepost.cli import Refused
from fencepost.cli.files import Output, lines_of, properties_in


def test_a_file_has_what_it_had_until_all_of_the_new_is_there(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("the page of yesterday, which is longer")
    output = Output("--page", str(path))
    assert path.read_text() == "the page of yesterday, which is longer"
    output.write(["the page ", "of today ✓"])
    assert path.read_text() == "the page of today ✓"


def test_a_new_file_is_there_before_the_work_begins(tmp_path: Path) -> None:
    output = Output("--page", str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").read_text() == ""
    output.write([])
    assert (tmp_path / "page.html").read_text() == ""


def test_what_is_no_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        Output("--page", str(tmp_path / "pipe")).write(["to whoever reads"])
        assert os.read(reader, 100) == b"to whoever reads"
    finally:
        os.close(reader)


def test_one_file_by_two_names_is_told(tmp_path: Path) -> None:
    output = Output("--page", str(tmp_path / "one"))
    (tmp_path / "same").symlink_to("one")
    (tmp_path / "other").touch()
    assert output.is_at(str(tmp_path / "same")) and not output.is_at(str(tmp_path / "other"))
    output.write([])


@pytest.mark.parametrize(("name", "why"), [("", "Is a directory"), ("none/page.html", "No such file or directory")])
def test_what_cannot_be_written_is_refused_before_the_work_begins(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(Refused, match=f"^--page {tmp_path / name}: it cannot be written: {why}$"):
        Output("--page", str(tmp_path / name))


def test_what_the_disk_does_not_take_is_told() -> None:
    with pytest.raises(Refused, match=r"^--page /dev/full: it cannot be written: No space left on device$"):
        Output("--page", "/dev/full").write(["a page"])


def test_settings_are_read_whatever_editor_wrote_them(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes("client.id=mé\r\nacks=all".encode("utf-8-sig"))
    assert properties_in("--command-config", str(path)) == {"client.id": "mé", "acks": "all"}


def test_settings_that_cannot_be_read_are_refused_with_the_option(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    with pytest.raises(Refused, match=f"^--command-config {path}: it cannot be read: No such file or directory$"):
        properties_in("--command-config", str(path))
    path.write_bytes(b"client.id=m\xe9")
    with pytest.raises(Refused, match=f"^--command-config {path}: it is no text in UTF-8$"):
        properties_in("--command-config", str(path))


def test_lines_keep_their_ends(tmp_path: Path) -> None:
    (tmp_path / "history").write_bytes(b"one\ntwo\r\nthree")
    assert lines_of(str(tmp_path / "history")) == [b"one\n", b"two\r\n", b"three"]
