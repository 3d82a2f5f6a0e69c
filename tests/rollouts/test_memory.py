"""Freed memory is used again."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np
from olmorl_cli.rollouts.parallel import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
np.ones(1 << 23).sum()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(1 << 23).sum()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(word):
    """Pages that the system had to give for a second array of 64 MB, the first one being freed."""
    return int(subprocess.run([sys.executable, "-c", PROGRAM, word], capture_output=True, check=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
def test_the_next_array_takes_the_place_of_the_freed_one():
    """64 MB are 32 pages of 2 MB at least, where the system gives large ones."""
    assert faults("keep") < 16 < faults("leave")
