"""Standard output of a command: what cannot be printed is remembered, told once, and does not disturb the end."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from fencepost.cli.standard_output import StandardOutput, say

#: What is printed is written at once, or when it is flushed.
AT_ONCE = pytest.mark.parametrize("at_once", [True, False])


def in_a_process(body: str, output: int | None, at_once: bool = False) -> tuple[int, str]:
    """Exit code, and what is said on standard error, by code that has `output`, a StandardOutput."""
    code = "import sys\nfrom fencepost.cli.standard_output import StandardOutput, say\n"
    done = subprocess.run(
        [sys.executable, "-c", code + body],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "1" if at_once else ""},
    )
    if output is not None:
        os.close(output)
    return done.returncode, done.stderr


def now() -> object:
    return sys.stdout


def full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def test_it_is_in_its_place_as_long_as_the_command_runs_and_prints_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = io.StringIO()
    monkeypatch.setattr(sys, "stdout", before)
    with StandardOutput() as output:
        assert now() is output
        assert sys.stdout.write("four") == 4
        print("and more")
        assert output.getvalue() == before.getvalue()
    assert now() is before
    assert (before.getvalue(), output.failure) == ("fourand more\n", None)


def test_it_is_back_after_a_command_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = io.StringIO()
    monkeypatch.setattr(sys, "stdout", before)
    with pytest.raises(KeyError), StandardOutput():
        raise KeyError
    assert now() is before


@AT_ONCE
def test_what_cannot_be_printed_raises_once_is_remembered_and_leaves_the_end_quiet(at_once: bool) -> None:
    body = """
raised = 0
with StandardOutput() as output:
    for _ in range(3):
        try:
            print("a line")
            output.flush()
        except OSError as error:
            raised += 1
            assert output.failure is error
    print("what is left in the buffer")
print(raised, output.failure.strerror, file=sys.stderr)
"""
    assert in_a_process(body, full(), at_once) == (0, "1 No space left on device\n")


def test_a_line_that_can_be_said_is_there_at_once() -> None:
    read, write = os.pipe()
    body = "with StandardOutput():\n    assert say('ready') is None\n    import os; os._exit(0)"
    assert in_a_process(body, write) == (0, "")
    assert os.read(read, 100) == b"ready\n"
    os.close(read)


@pytest.mark.parametrize("must_be_read", [True, False])
def test_whoever_says_a_line_learns_why_it_was_not_printed_and_it_may_be_no_failure(must_be_read: bool) -> None:
    body = f"""
with StandardOutput() as output:
    error = say("ready", must_be_read={must_be_read})
    assert say("more") is None, "it goes nowhere"
print(error.strerror, output.failure is error, file=sys.stderr)
"""
    assert in_a_process(body, full()) == (0, f"No space left on device {must_be_read}\n")


def test_a_line_that_need_not_be_read_is_no_failure_of_anothers_output(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    error = say("ready", must_be_read=False)
    assert error is not None and error.errno == 28


def test_without_standard_output_a_command_prints_nothing_and_does_not_fail() -> None:
    """As where it was closed before the process began."""
    body = """
import os
sys.stdout = None
with StandardOutput() as output:
    assert sys.stdout is None
    assert output.write("a line") == 0
    output.flush()
    assert say("ready") is None
assert sys.stdout is None and output.failure is None
"""
    assert in_a_process(body, None) == (0, "")


@pytest.mark.parametrize("name", ["a\udcff", "ü✓"])
@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_name_that_the_terminal_cannot_show_is_shown_in_other_words(name: str, encoding: str) -> None:
    raw = io.BytesIO()
    text = io.TextIOWrapper(raw, encoding=encoding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", text)
        with StandardOutput():
            print(name, flush=True)
        printed = raw.getvalue()
    assert printed == f"{name}\n".encode(encoding, "backslashreplace")
