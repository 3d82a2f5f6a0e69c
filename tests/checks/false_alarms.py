"""How often each check fires where nothing is wrong.

`python -m tests.checks.false_alarms [--runs N]`: N healthy runs (200), a line for each check; exit code 1 where one fires in
more than `MOST` of them.
"""

import argparse
import sys

from olmorl_cli.checks.catalog import findings_of
from olmorl_cli.checks.finding import CODES, States
from tests.checks.runs import healthy

MOST = 0.02
"""Share of healthy runs in which a check may fire."""
SHAPES = ((20, 24, 8), (12, 16, 16), (40, 12, 8), (10, 64, 4))
"""Steps, prompts a step and answers a prompt, in turn."""


def alarms(runs: int) -> dict[str, tuple[int, int]]:
    """Code → in how many runs it fired, and in how many it could say anything."""
    counts = dict.fromkeys(CODES, (0, 0))
    for seed in range(runs):
        steps, prompts, size = SHAPES[seed % len(SHAPES)]
        for finding in findings_of(healthy(seed, steps, prompts, size).evidence()):
            fired, said = counts[finding.code]
            counts[finding.code] = (fired + finding.fired, said + (finding.state is not States.NOT_AVAILABLE))
    return counts


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    counts = alarms(runs)
    for code, (fired, said) in counts.items():
        sys.stdout.write(f"{code:<18} fired in {fired} of {said} healthy runs that it could judge, {fired / runs:.1%}\n")
    return int(any(fired > MOST * runs for fired, _ in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
