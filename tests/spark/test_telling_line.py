"""The line that is told, and logged, of what a batch failed of: texts as Spark has them."""

from __future__ import annotations

import pytest

from fencepost.spark.telling_line import telling_line

CAPTURED = "An exception was thrown from the Python worker:\n"
FRAMES = 'Traceback (most recent call last):\n  File "a.py", line 7, in count\n    raise wrong(text)\n          ^^^^^\n'
IN_JAVA = (
    "An error occurred while calling o61.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage "
    "failure: Task 0 in stage 2.0 failed 1 times, most recent failure: Lost task 0.0 in stage 2.0 (TID 5): "
    f"org.apache.spark.api.python.PythonException: {FRAMES}"
)
STACK = "\n\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:5)\nDriver stacktrace:\n"
CAUSE = f"Caused by: org.apache.spark.api.python.PythonException: {FRAMES}"
CHAIN = "\nThe above exception was the direct cause of the following exception:\n\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{CAPTURED}{FRAMES}ValueError: no number", "ValueError: no number"),
        # A message of several lines, which itself has words of errors.
        (f"{CAPTURED}{FRAMES}ValueError: no number\nafter Error: 7\n\nthe end", "ValueError: no number"),
        (f"{CAPTURED}{FRAMES}ValueError: amiss:\n  amount: Error: 7\nthe end", "ValueError: amiss: amount: Error: 7"),
        (f"{CAPTURED}{FRAMES}ValueError: \n7 is amiss", "ValueError: 7 is amiss"),
        # Whose name does not say that it is an error, and whose message is empty.
        (f"{CAPTURED}{FRAMES}bank.TooPoor: 7 is missing\nand more", "bank.TooPoor: 7 is missing"),
        (f"{CAPTURED}{FRAMES}KeyboardInterrupt", "KeyboardInterrupt"),
        (f"{CAPTURED}{FRAMES}KeyError: 'a'\n{CHAIN}{FRAMES}Wrong: it is b", "Wrong: it is b"),
        (f"{IN_JAVA}bank.TooPoor: 7\n{STACK}{CAUSE}bank.TooPoor: 7\n{STACK}", "bank.TooPoor: 7"),
        # No traceback, or nothing behind it.
        ("the first\nthe second", "the first"),
        (f"[PLAN] cannot be made\nspark.SparkException: no cores\n{STACK}", "spark.SparkException: no cores"),
        (f"stopped\n{FRAMES}", "stopped"),
        ("\n \n", "?"),
        ("", "?"),
        (f"{CAPTURED}{FRAMES}Wrong: {'x' * 999}", f"Wrong: {'x' * 293}"),
    ],
)
def test_what_went_wrong_is_told_in_one_line(text: str, told: str) -> None:
    assert telling_line(OSError(text)) == told


def test_an_error_of_ours_is_told_without_advice_for_a_producer() -> None:
    assert telling_line(OSError("EndTxn of 'app': abort the transaction, then go on")) == "EndTxn of 'app'"
