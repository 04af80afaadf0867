"""`fencepost history`: prints the history that `fencepost simulate --history` saved, or writes it as a page."""

from __future__ import annotations

import argparse
import signal
import sys

from fencepost.cli import Refused
from fencepost.cli.files import Output, lines_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `fencepost history`."""
    parser.add_argument("file", metavar="FILE", help="what `fencepost simulate --history FILE` has saved (required)")
    parser.add_argument(
        "--page", metavar="OUT.html", help="write a page that opens in any browser (default: tell it here)"
    )
    parser.add_argument(
        "--about",
        metavar="WORD",
        help="tell only the lines with this word: a transactional id, producer_id=7, left-0, #17 (default: all)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the history, or write the page; exit code 0.

    Raises Refused for a file that is no history, or a damaged one, and for a word that is not in it.
    """
    from fencepost.simulation.history import page
    from fencepost.simulation.history.file_format import HistoryUnreadable, read
    from fencepost.simulation.history.story import tell

    output = None if options.page is None else Output("--page", options.page)
    try:
        events = read(lines_of(options.file))
    except HistoryUnreadable as unreadable:
        raise Refused(f"{options.file}: {unreadable}") from None
    if output is not None:
        if output.is_at(options.file):
            raise Refused(f"--page {options.page}: it is the history itself; name another file")
        output.write(page.of(events))
        return 0
    former = signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever reads it may have enough of it
    found = options.about is None
    try:
        for told in tell(events):
            line = f"{told.time / 1_000_000:.6f} {told.lane:<14} {told.text}"
            if options.about is None or options.about in line.replace(",", " ").replace(":", " ").split():
                print(line)
                found = True
        sys.stdout.flush()
    finally:
        signal.signal(signal.SIGPIPE, former)
    if not found:
        raise Refused(f"--about {options.about}: no line of {options.file} has this word; see without it what there is")
    return 0
