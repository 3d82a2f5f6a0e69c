"""Healthy runs, made up as arrays, and the evidence that the checks look at; a test breaks one thing before that."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from olmorl_cli.checks.evidence import Evidence, Named, Texts
from olmorl_cli.core.advantages import answer_advantages, group_statistics
from olmorl_cli.core.mismatch import Mismatch
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.tokens import Tokens, TokenSums, Workspace, sampler_sums, term_sums

Floats = npt.NDArray[np.float64]
TRL = Recipe(scale="group_std", ddof=1, std_eps=1e-4)


@dataclass
class Run:
    """A run's arrays; N answers of `size` a prompt, T tokens."""

    seed: int
    steps: int
    prompts: int
    size: int
    groups: npt.NDArray[np.int64]
    step_of_group: npt.NDArray[np.int64]
    rewards: Floats
    lengths: npt.NDArray[np.int64]
    new: Floats
    old: Floats
    sampler: Floats
    hashes: npt.NDArray[np.uint64]
    cut: Floats
    form: Floats
    given: Floats | None = None
    recipe: Recipe = field(default_factory=Recipe)
    masked: npt.NDArray[np.int64] | None = None

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        return np.concatenate(([0], np.cumsum(self.lengths)))

    @property
    def step(self) -> npt.NDArray[np.int64]:
        """Of each answer."""
        return self.step_of_group[self.groups]

    def evidence(self) -> Evidence:
        """What the checks see of it."""
        statistics = group_statistics(self.rewards, self.groups, self.step_of_group.size)
        tokens, workspace = Tokens(self.offsets, self.new, self.old, self.sampler), Workspace()
        mismatch = Mismatch()
        mismatch.add(tokens, workspace)
        terms = self.recipe.terms
        masked = np.zeros_like(self.lengths) if self.masked is None else self.masked
        sums = TokenSums(self.lengths, {terms: term_sums(tokens, terms)}, sampler_sums(tokens), masked)
        given = self.given
        if given is None:
            given = answer_advantages(self.rewards, self.groups, statistics, TRL).astype(np.float32).astype(np.float64)
        return Evidence(
            groups=self.groups,
            step_of_group=self.step_of_group,
            rewards=self.rewards,
            advantages=answer_advantages(self.rewards, self.groups, statistics, self.recipe),
            recipe=self.recipe,
            steps=list(range(100, 100 + self.steps)),
            step_order=np.arange(self.steps),
            columns={role: role for role in ("group", "step", "reward", "logp_new", "logp_old", "logp_sampler")},
            group_ids=lambda numbers: [f"p{number}" for number in numbers.tolist()],
            ids=self.step_of_group.size,
            sums=sums,
            old_equals_new=bool((self.new == self.old).all()),
            mismatch=mismatch,
            lengths=self.lengths,
            texts=Texts("completion", self.hashes, np.ones(self.groups.size, dtype=np.bool_)),
            cut=Named("finish_reason", self.cut),
            components=(Named("accuracy_reward", self.rewards), Named("format_reward", self.form)),
            given=Named("advantage", given),
        )


def healthy(seed: int, steps: int = 20, prompts: int = 24, size: int = 8, mean_length: int = 24) -> Run:
    """A run in which nothing is wrong.

    Prompts of every difficulty, which wanders from step to step (autocorrelated) and falls a little; lengths that do not
    depend on rewards; a policy that drifts by a few percent, a sampler that rounds; two answers of a hundred cut off, one of
    twenty the copy of another; a format reward that is nearly always there.
    """
    rng = np.random.default_rng([11, seed])
    step_of_group = np.repeat(np.arange(steps), prompts)
    groups = np.repeat(np.arange(steps * prompts), size)
    n = groups.size
    wander = np.zeros(steps)
    for step in range(1, steps):
        wander[step] = 0.5 * wander[step - 1] + rng.normal(0.0, 0.12)
    ease = (
        rng.normal(0.0, 1.5, step_of_group.size)
        + (wander + np.linspace(0.0, rng.choice([0.0, 0.3, 0.6]), steps))[step_of_group]
    )
    rewards = (rng.random(n) < (1.0 / (1.0 + np.exp(-ease)))[groups]).astype(np.float64)
    lengths = np.maximum(1, rng.gamma(2.0, mean_length / 2.0, n)).astype(np.int64)
    total = int(lengths.sum())
    old = -(rng.standard_exponential(total) ** 2) * 0.35
    new = np.minimum(old + rng.normal(0.0, 1.0, total) * np.repeat(rng.gamma(2.0, 0.03, n), lengths), 0.0)
    sampler = np.minimum(old + rng.normal(0.0, 0.015, total), 0.0)
    hashes = rng.integers(0, 1 << 62, n).astype(np.uint64)
    copies = np.flatnonzero((rng.random(n) < 0.05) & (np.arange(n) % size > 0))
    copies = copies[rewards[copies] == rewards[copies - 1]]
    hashes[copies] = hashes[copies - 1]
    cut = (rng.random(n) < 0.02).astype(np.float64)
    form = 0.1 * (rng.random(n) < 0.97)
    return Run(seed, steps, prompts, size, groups, step_of_group, rewards, lengths, new, old, sampler, hashes, cut, form)
