"""The files to measure on, made when first asked for. Sizes are in millions: of tokens, of answers."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.measure import Command, olmorl, program, run

STEPS, GROUP_SIZE, TOKENS = 4, 8, 200
"""Of the rollouts: training steps, answers a prompt, mean tokens an answer."""


@dataclass(frozen=True)
class Data:
    """The files in one folder. A file that is there already is used as it is.

    Attributes:
        folder: where the files are, and where the measured programs write.
    """

    folder: Path

    def rollouts(self, tokens: float) -> str:
        """Rollouts with about so many million tokens."""
        prompts = max(1, round(tokens * 1e6 / (STEPS * GROUP_SIZE * TOKENS)))
        shape = f"--steps {STEPS} --prompts {prompts} --group-size {GROUP_SIZE} --tokens {TOKENS} --seed 0"
        return self._made(f"rollouts-{tokens:g}.parquet", lambda out: olmorl("sample", "-o", out, *shape.split()))

    def one_row_group(self, tokens: float) -> str:
        """The same rollouts, all in one row group."""
        rollouts = self.rollouts(tokens)
        return self._made(f"rollouts-{tokens:g}-one.parquet", lambda out: program("one_row_group", rollouts, out))

    def answers(self, answers: float, order: str) -> str:
        """So many million answers' prompt_id and reward: "sorted" by integer ids, or "shuffled" with text ids."""
        count = str(round(answers * 1e6))
        made = f"answers-{answers:g}-{order}.parquet"
        return self._made(made, lambda out: program("make_answers", out, count, str(GROUP_SIZE), order))

    def output(self, name: str) -> str:
        """Where a measured program writes."""
        return str(self.folder / f"written-{name}")

    def remove_outputs(self) -> None:
        for path in self.folder.glob("written-*"):
            path.unlink()

    def _made(self, name: str, command: Callable[[str], Command]) -> str:
        path = self.folder / name
        if not path.exists():
            part = path.with_name(f"part-{name}")
            run(command(str(part)))
            os.replace(part, path)
        return str(path)
