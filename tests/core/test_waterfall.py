"""Where the gradient went: lines that add up, each token in the one that the definitions put it in."""

import numpy as np
import pytest

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.tokens import Tokens, TokenSums, sampler_sums, term_sums
from olmorl_cli.core.waterfall import LINES, Line, waterfall

RECIPES = [
    Recipe(),
    Recipe(zero_signal_groups="kept"),
    Recipe(surrogate="cispo"),
    Recipe(sampler_mode="truncate", sampler_cap=1.2),
    Recipe(sampler_mode="mask", sampler_cap=1.2, sampler_low=0.7),
    Recipe(sampler_mode="keep_or_drop", sampler_cap=1.2, sampler_level="sequence_product"),
    Recipe(surrogate="cispo", sampler_mode="mask", sampler_cap=1.1),
]


def answers(seed: int, number: int = 40) -> tuple[Tokens, np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, advantages (NaN for some), kept flags and masked counts of answers, some without a token."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, number)
    offsets, total = np.concatenate(([0], np.cumsum(lengths))), int(lengths.sum())
    old = -rng.exponential(1.0, total)
    tokens = Tokens(offsets, old + rng.normal(0, 0.3, total), old, old + rng.normal(0, 0.3, total))
    kept = rng.random(number) < 0.7
    advantages = np.where(kept, rng.normal(0, 1, number), 0.0)
    advantages[rng.random(number) < 0.1] = np.nan
    advantages[rng.random(number) < 0.1] = 0.0
    return tokens, advantages, kept, rng.integers(0, 4, number)


def lines_of(recipe: Recipe, seed: int) -> list[Line]:
    tokens, advantages, kept, masked = answers(seed)
    sums = TokenSums(np.diff(tokens.offsets), {recipe.terms: term_sums(tokens, recipe.terms)}, sampler_sums(tokens), masked)
    return waterfall(advantages, kept, sums, recipe)


def by_token(recipe: Recipe, seed: int) -> dict[str, tuple[int, float]]:
    """The same token by token, from the definitions."""
    tokens, advantages, kept, masked = answers(seed)
    assert tokens.old is not None
    assert tokens.sampler is not None
    found = dict.fromkeys(LINES, (0, 0.0))

    def put(name: str, mass: float) -> None:
        found[name] = found[name][0] + 1, found[name][1] + mass

    for answer, advantage in enumerate(advantages.tolist()):
        if np.isnan(advantage):
            continue
        part = slice(tokens.offsets[answer], tokens.offsets[answer + 1])
        ratios = np.exp(tokens.new[part] - tokens.old[part])
        log_weights = tokens.old[part] - tokens.sampler[part]
        if recipe.sampler_level == "sequence_product":
            log_weights = np.full(log_weights.size, log_weights.sum())
        fates = ["masked"] * int(masked[answer])
        for ratio, weight in zip(ratios.tolist(), np.exp(log_weights).tolist(), strict=True):
            clips = recipe.surrogate == "ratio_clip"
            outside = weight > (recipe.sampler_cap or np.inf) or weight < (recipe.sampler_low or 0.0)
            dropped = recipe.zero_signal_groups == "dropped"
            if not kept[answer] and (dropped or advantage == 0.0):
                fates.append("zero_signal")
            elif clips and advantage < 0 and ratio < 0.8:
                fates.append("clipped_low")
            elif clips and advantage > 0 and ratio > 1.272:
                fates.append("clipped_high")
            elif recipe.sampler_mode in ("mask", "keep_or_drop") and outside:
                fates.append("cut")
            else:
                fates.append("live")
        for fate in fates:
            put(fate, abs(advantage))
            put("all", abs(advantage))
    return found


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_every_token_is_in_its_line(recipe: Recipe) -> None:
    for seed in range(4):
        expected = by_token(recipe, seed)
        lines = lines_of(recipe, seed)
        assert [line.name for line in lines] == list(LINES)
        assert {line.name: line.tokens for line in lines} == {name: tokens for name, (tokens, _) in expected.items()}
        for line in lines:
            assert line.mass == pytest.approx(expected[line.name][1], rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_the_lines_add_up_exactly(recipe: Recipe) -> None:
    whole, *parts = lines_of(recipe, 5)
    assert whole.tokens == sum(line.tokens for line in parts)
    assert whole.mass == sum(line.mass for line in parts)


def test_no_answer_has_no_token() -> None:
    recipe = Recipe()
    nothing = TokenSums.empty([recipe.terms], sampler=False)
    assert [(line.tokens, line.mass) for line in waterfall(np.zeros(0), np.zeros(0, np.bool_), nothing, recipe)] == [
        (0, 0)
    ] * 7
