"""Where the `olmorl` command starts: Ctrl-C is taken care of before the rest is loaded."""

import os
import signal
import sys

from olmorl_cli.interrupts import leave


def run() -> None:
    """Entry point of the `olmorl` command."""
    signal.signal(signal.SIGINT, leave)
    # NumPy and Arrow take memory by turns here: from one allocator, what the one gives back serves the other.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from olmorl_cli.__main__ import main

    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done
    sys.exit(code)
