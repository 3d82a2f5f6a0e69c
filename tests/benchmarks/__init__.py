"""How long olmorl takes and how much memory, beside other programs that do the same: `python -m tests.benchmarks`."""
