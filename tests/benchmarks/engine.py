"""What `--engine ray` costs, and how it grows: one machine, a cluster of one node and one of two, one core each.

`python -m tests.benchmarks.engine [--tokens 40,160] [--answers 1,10] [--work DIR]` (needs the [ray] extra). The second table
carries the measured slopes to inputs that do not fit here: it is arithmetic, not a measurement.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from olmorl_cli.rollouts.shares import MOST_ANSWERS
from tests.benchmarks.__main__ import sizes
from tests.benchmarks.measure import Run, olmorl, program, run
from tests.benchmarks.soak import figures, sampled
from tests.cluster.nodes import Cluster

RAY = ("--engine", "ray")
FRAGMENT_BYTES = 64 << 20
TOKENS_PER_ANSWER = 1_000
"""Of the inputs that are carried on to."""
SMALL_FILES = 400


@dataclass(frozen=True)
class Shape:
    """A measured input.

    Attributes:
        path: of the file or folder.
        tokens, answers: how many it has.
    """

    path: Path
    tokens: float
    answers: float

    @property
    def bytes(self) -> int:
        files = [self.path] if self.path.is_file() else list(self.path.iterdir())
        return sum(file.stat().st_size for file in files)


@contextmanager
def cluster(nodes: int) -> Iterator[None]:
    """Commands that run inside reach a cluster of so many nodes, one core each."""
    with Cluster({}) as head:
        for _ in range(nodes - 1):
            head.add()
        before = dict(os.environ)
        os.environ.update(head.environment)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def timed(shape: Shape, *engine: str, repeats: int = 1) -> Run:
    """`objective` of the input; the run of median time, after one to warm up."""
    runs = [run(olmorl("objective", str(shape.path), *engine)) for _ in range(repeats + 1)][1:]
    return sorted(runs, key=lambda each: each.seconds)[len(runs) // 2]


def long_answers(work: Path, millions: float) -> Shape:
    prompts = max(1, int(millions * 1e6) // (10 * 8 * 500))
    name = work / f"tokens-{millions:g}.parquet"
    return Shape(sampled(name, steps=10, prompts=prompts, group_size=8, tokens=500), 4_000.0 * prompts * 10, 80.0 * prompts)


def many_answers(work: Path, millions: float) -> Shape:
    prompts = max(1, int(millions * 1e6) // 80)
    name = work / f"answers-{millions:g}.parquet"
    return Shape(sampled(name, steps=10, prompts=prompts, group_size=8, tokens=4), 320.0 * prompts, 80.0 * prompts)


def many_files(work: Path, one: Shape, files: int) -> Shape:
    folder = work / f"files-{files}"
    if not folder.exists():
        run(program("split", str(one.path), str(folder), str(files)))
    return Shape(folder, one.tokens, one.answers)


def measure(work: Path, tokens: tuple[float, float], answers: tuple[float, float], repeats: int) -> None:
    """Run all, and print the tables.

    Raises:
        ProgramError: a command failed.
        AssertionError: an engine gave other figures than this machine.
    """
    short, long = (long_answers(work, millions) for millions in tokens)
    few, many = (many_answers(work, millions) for millions in answers)
    small = long_answers(work, 4)
    files = many_files(work, small, SMALL_FILES)
    here = {shape.path: timed(shape, repeats=repeats) for shape in (short, long, few, many, small)}
    said = [("local", name(shape), here[shape.path]) for shape in (short, long, many)]
    started = timed(short, *RAY, repeats=repeats)
    said.append(("ray, started for it", name(short), started))
    on: dict[tuple[int, Path], Run] = {}
    for nodes in (1, 2):
        with cluster(nodes):
            for shape in (short, long, few, many, small, files):
                on[nodes, shape.path] = done = timed(shape, *RAY, repeats=repeats)
                expected = here[small.path if shape is files else shape.path]
                assert figures(done.output) == figures(expected.output), f"{shape.path}: other figures"
                said.append((f"ray, {nodes} node{'s' * (nodes > 1)}", name(shape), done))
    lines = ["| engine | objective of | s | driver's own s | driver's peak MB |", "| --- | --- | ---: | ---: | ---: |"]
    lines += [f"| {e} | {what} | {done.seconds:.1f} | {done.cpu:.1f} | {done.peak:.0f} |" for e, what, done in said]
    per_token = [
        (on[nodes, long.path].seconds - on[nodes, short.path].seconds) / (long.tokens - short.tokens) for nodes in (1, 2)
    ]
    per_task = max((on[2, files.path].cpu - on[2, small.path].cpu) / SMALL_FILES, 1e-4)
    per_answer = (on[2, many.path].peak - on[2, few.path].peak) * 1e6 / (many.answers - few.answers)
    seconds_per_answer = max((on[2, many.path].cpu - on[2, few.path].cpu) / (many.answers - few.answers), 0.0)
    token_bytes = long.bytes / long.tokens
    start = max(on[2, short.path].seconds - per_token[1] * short.tokens, 1.0)
    slopes = (
        f"Slopes: {token_bytes:.1f} bytes a token; {per_token[0] * 1e9:.0f} ns a token with one worker and"
        f" {per_token[1] * 1e9:.0f} with two ({per_token[0] / per_token[1]:.2f} times as fast); of the driver's own time"
        f" {per_task * 1e3:.1f} ms a fragment in a file of its own and {seconds_per_answer * 1e6:.2f} us an answer, of its"
        f" memory {per_answer:.0f} bytes an answer; {start:.1f} s to start."
    )
    lines += [
        "",
        slopes,
        "",
        "| tokens | bytes read | fragments | driver's memory | 64 cores | 1,024 cores |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for exponent in range(9, 13):
        total = 10.0**exponent
        size, count = total * token_bytes, total / TOKENS_PER_ANSWER
        tasks = max(size / FRAGMENT_BYTES, 1.0)
        alone = start + tasks * per_task + count * seconds_per_answer
        times = [max(alone, start + total * per_token[0] / cores) for cores in (64, 1024)]
        memory = on[2, few.path].peak * 1e6 + min(count, MOST_ANSWERS) * per_answer
        lines.append(
            f"| 10^{exponent} | {scaled(size, 'B')} | {tasks:,.0f} | {scaled(memory, 'B')} |"
            f" {lasting(times[0])} | {lasting(times[1])} |"
        )
    sys.stdout.write("\n".join(lines) + "\n")


def name(shape: Shape) -> str:
    what = f"{shape.tokens / 1e6:.0f}M tokens, {scaled(shape.answers, '')} answers"
    return what if shape.path.is_file() else f"{what}, {SMALL_FILES} files"


def scaled(number: float, unit: str) -> str:
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}".strip()
    return f"{number:.3g} {unit}".strip()


def lasting(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=sizes, default=(40.0, 160.0), metavar="M,M", help="millions, of the long answers")
    parser.add_argument("--answers", type=sizes, default=(1.0, 10.0), metavar="M,M", help="millions, of the short answers")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each, after one to warm up")
    parser.add_argument("--work", type=Path, help="folder for the files, which stay there; default: a temporary one")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="olmorl-engine-") as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        measure(work, options.tokens, options.answers, options.repeats)
    return 0


if __name__ == "__main__":
    sys.exit(main())
