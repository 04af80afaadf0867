"""`python -m fencepost` is the `fencepost` command.

It begins here, before its modules are imported: until a command does its work there is nothing that Ctrl-C could leave
half done.  A KeyboardInterrupt in the middle of an import would be a traceback, or be wrapped into another error.
A node that is told to stop by SIGTERM has stopped cleanly, then as later.
"""

import os
import sys


def _has_not_begun(*_: object) -> None:
    try:
        os.write(2, b"fencepost serve: told to stop before it had begun, and has touched nothing\n")
    finally:
        os._exit(0)


def main() -> int:
    """Run the command; its exit code is that of `fencepost.cli.main`, 130 also if Ctrl-C comes earlier."""
    try:
        import signal

        interrupted = signal.getsignal(signal.SIGINT)
        if interrupted is signal.default_int_handler:  # in the background it is ignored
            signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        if sys.argv[1:2] == ["serve"]:  # which takes the signal over
            signal.signal(signal.SIGTERM, _has_not_begun)
        from fencepost import cli

        return cli.main(begin=lambda: signal.signal(signal.SIGINT, interrupted))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
