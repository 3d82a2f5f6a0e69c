"""Where the `olmorl` command starts: Ctrl-C is taken care of before the rest is loaded."""

import gc
import os
import signal
import sys

from olmorl_cli.interrupts import leave

IMPORTED = 100_000
"""About as many objects as imports make; garbage is looked for when so many more have come."""


def run() -> None:
    """Entry point of the `olmorl` command."""
    signal.signal(signal.SIGINT, leave)
    # NumPy and Arrow take memory by turns here: from one allocator, what the one gives back serves the other.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # What is imported stays, so looking for garbage among it is in vain; NumPy's linear algebra, hardly used here, starts a
    # thread a core that spin; and plugins of pydantic, which typer imports, are looked for in every installed package.
    gc.set_threshold(IMPORTED)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from olmorl_cli.__main__ import main

    code = main()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done
    gc.freeze()  # Python would look through all objects for garbage once more, which takes longer than a small file
    sys.exit(code)
