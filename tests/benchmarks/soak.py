"""Long inputs of three shapes, each scored once: how much memory they take, and that the figures agree.

`python -m tests.benchmarks.soak [--tokens N] [--work DIR]`: a thousand small files, one file of N tokens (a thousand million
where the disk has room for them), and a hundred thousand groups of 64 answers.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks.measure import ProgramError, olmorl, program, run

MOST_TOKENS = 1_000_000_000
TOKEN_BYTES = 15
"""About what a token of `olmorl sample` takes on disk."""
ANSWERS = 64
"""Of a group, where there are many groups."""


def sampled(path: Path, *, steps: int, prompts: int, group_size: int, tokens: int) -> Path:
    """Rollouts of this shape; a file that is there already is used as it is."""
    if not path.exists():
        shape = {"steps": steps, "prompts": prompts, "group-size": group_size, "tokens": tokens}
        run(olmorl("sample", "-o", str(path), *(f"--{name}={value}" for name, value in shape.items())))
    return path


def many_files(work: Path, files: int) -> tuple[Path, Path]:
    """A folder of small files, and the same rollouts in one."""
    one = sampled(work / "small.parquet", steps=10, prompts=100, group_size=8, tokens=100)
    folder = work / f"many-{files}"
    if not folder.exists():
        run(program("split", str(one), str(folder), str(files)))
    return folder, one


def cases(work: Path, files: int, tokens: int, groups: int) -> Iterator[tuple[str, list[str]]]:
    """What is run on what, made when it is asked for."""
    folder, one = many_files(work, files)
    yield f"{files} files, objective", ["objective", str(folder)]
    yield "the same in one, objective", ["objective", str(one)]
    yield f"{files} files, advantages", ["advantages", str(folder), "-o", str(work / "written.parquet")]
    long = sampled(work / f"long-{tokens}.parquet", steps=10, prompts=max(1, tokens // 80_000), group_size=8, tokens=1_000)
    yield f"{tokens:,} tokens, objective", ["objective", str(long)]
    yield f"{tokens:,} tokens, compare", ["compare", str(long)]
    yield f"{tokens:,} tokens, inspect", ["inspect", str(long)]
    yield f"{tokens:,} tokens, advantages", ["advantages", str(long), "-o", str(work / "written.arrow")]
    wide = sampled(work / f"wide-{groups}.parquet", steps=10, prompts=max(1, groups // 10), group_size=ANSWERS, tokens=1)
    yield f"{groups:,} groups of {ANSWERS}, groups", ["groups", str(wide), "-o", str(work / "written.jsonl")]
    yield f"{groups:,} groups of {ANSWERS}, objective", ["objective", str(wide)]


def told(output: str) -> str:
    """What a run said, short: the answers and the tokens, the objective if there is one."""
    if not output:
        return "a file"
    record = json.loads(output.splitlines()[0])
    keys = [key for key in ("answers", "groups", "tokens", "objective") if key in record]
    return ", ".join(f"{key} {record[key]:,}" for key in keys)


def figures(output: str) -> dict[str, object]:
    return {key: value for key, value in json.loads(output).items() if key not in ("columns", "files")}


def soak(work: Path, files: int, tokens: int, groups: int) -> bool:
    """Run all and print a line each; whether all ended well and the many files gave what the one gave."""
    objectives, sound = [], True
    for name, arguments in cases(work, files, tokens, groups):
        try:
            done = run(olmorl(*arguments))
            sys.stdout.write(f"{name}: {done.seconds:.1f} s, peak {done.peak:,.0f} MB: {told(done.output)}\n")
        except ProgramError as error:
            sys.stdout.write(f"{name}: {error}\n")
            sound = False
            continue
        finally:
            for path in work.glob("written.*"):
                path.unlink()
        if arguments[0] == "objective" and len(objectives) < 2:
            objectives.append(figures(done.output))
        sys.stdout.flush()
    same = len(objectives) == 2 and objectives[0] == objectives[1]
    sys.stdout.write(f"the {files} files and the one give {'the same figures' if same else 'OTHER FIGURES'}\n")
    return sound and same


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, help="of the long file; default: a thousand million, if the disk has room")
    parser.add_argument("--files", type=int, default=1_000, help="small ones")
    parser.add_argument("--groups", type=int, default=100_000, help="of the wide file")
    parser.add_argument("--work", type=Path, help="folder for the files, which stay there; default: a temporary one")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="olmorl-soak-") as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(work).free
        room = free // 2 // TOKEN_BYTES // 2  # for the file, and for what is written from it
        tokens = int(options.tokens or min(MOST_TOKENS, room))
        sys.stdout.write(
            f"{tokens:,} tokens, {options.groups:,} groups, {options.files:,} files; {free / 1e9:.0f} GB are free\n"
        )
        return 0 if soak(work, options.files, tokens, options.groups) else 1


if __name__ == "__main__":
    sys.exit(main())
