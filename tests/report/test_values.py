"""What the page shows is what the commands say."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olmorl_cli.core.named import NAMED
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.objectives import score_objective
from olmorl_cli.report import charts, data, story
from olmorl_cli.report.details import HIDDEN, choose, read_details
from olmorl_cli.report.ends import MOST_WORDS, OTHER, read_ends
from olmorl_cli.report.payload import payload
from olmorl_cli.token_rows import token_rows
from tests.cli import kit
from tests.report.kit import SAMPLE, opened, run_of


@pytest.fixture(scope="module")
def run() -> data.Run:
    """The sample data's run."""
    return run_of(SAMPLE)


@pytest.mark.parametrize("recipe", ["olmorl", "grpo"])
def test_points_are_what_the_objective_says_by_step(recipe: str) -> None:
    made = NAMED[recipe]()
    run, selected = run_of(SAMPLE, made), opened(SAMPLE)
    by = replace(selected, choices={**selected.choices, "by": selected.choices["step"]})
    (expected,) = score_objective(by, [made], by="step", diagnose=True)
    points = data.points_of(run)
    assert points is not None
    assert points.x.tolist() == [row["step"] for row in expected.rows] == list(range(40))
    for key in ("objective", "clip_low", "clip_high", "approx_kl"):
        assert points.values[key].tolist() == [row[key] for row in expected.rows], key
    shares = [row["kept_groups"] / row["groups"] for row in expected.rows]
    assert points.values["kept"].tolist() == shares
    assert np.allclose(points.values["sampler_k3"], [row["sampler_k3"] for row in expected.rows], rtol=1e-12)
    assert points.values["reward"][0] == 14 / 128  # sample_data/README.md: 0.109
    assert points.values["length"] @ np.full(40, 128.0) == pytest.approx(62_644)
    assert points.outcome_shares.sum(axis=1) == pytest.approx(np.ones(40))


def test_more_steps_than_points_stand_together(tmp_path: Path) -> None:
    steps = np.repeat(np.arange(450), 2)[::-1]
    table = pa.table({"step": steps * 3, "prompt_id": steps % 7, "reward": (steps % 2 == 1) * np.tile([0.0, 1.0], 450)})
    run = run_of(kit.write(str(tmp_path / "s.parquet"), table))
    points = data.points_of(run)
    assert points is not None
    assert (points.steps, points.per_point, points.x.size) == (450, 3, 150)
    assert points.x.tolist() == list(range(0, 1350, 9))
    assert set(points.values["kept"]) == {1 / 3, 2 / 3}
    assert points.groups.sum() == 450


def test_steps_that_are_words_stand_in_order(tmp_path: Path) -> None:
    table = kit.rollouts(step=["10", "10", "10", "10", "9", "9", "9", "9"])
    points = data.points_of(run_of(kit.write(str(tmp_path / "w.parquet"), table)))
    assert points is not None
    assert (points.numeric, points.x.tolist()) == (False, [1.0, 2.0])
    assert points.values["kept"].tolist() == [1.0, 0.5]  # step 9 first


def test_log_ratios_are_counted_by_the_sign_of_the_advantage(run: data.Run) -> None:
    tokens = pa.Table.from_batches(token_rows(run.examined.objective, False, dictionaries=False)[1])
    advantages, ratios = (tokens[name].to_numpy() for name in ("advantage", "log_ratio"))
    below, above = advantages < 0.0, advantages > 0.0
    assert run.tallies is not None
    assert run.tallies.log_ratios.sum(axis=1).tolist() == [below.sum(), above.sum(), (advantages == 0.0).sum()]
    spread = data.log_ratio_spread(run.tallies)
    assert spread is not None
    middle = spread.edges.size // 2 - 1
    width = spread.edges[-1] / (spread.edges.size - 1)
    for counts, which in zip(spread.counts, (below, above), strict=True):
        assert counts[middle] == pytest.approx((np.abs(ratios[which]) <= width).sum(), rel=0.01)
    assert spread.counts.sum() + spread.beyond == (below | above).sum() == 28_858


def test_tokens_are_those_of_the_objective(run: data.Run) -> None:
    chosen = choose(run)
    details = read_details(run, chosen, False)
    assert (chosen.groups.size, chosen.answers.size, chosen.detailed) == (640, 5120, 5120)
    assert (details.prompt, details.answer, details.by_character) == ("prompt", "answer", True)
    tokens = pa.Table.from_batches(token_rows(run.examined.objective, False, dictionaries=False)[1])
    rows, places, ratios = (tokens[name].to_numpy() for name in ("row", "token", "log_ratio"))
    clipped = tokens["clipped_low"].to_numpy() | tokens["clipped_high"].to_numpy()
    for at in (0, 17, 900, 5119):
        own = rows == chosen.answers[at]
        codes = np.array(details.tokens[at])
        lengths = np.where(codes > HIDDEN, codes - HIDDEN, 1)
        shown = codes <= HIDDEN
        assert (np.cumsum(lengths) - 1)[shown].tolist() == places[own].tolist()
        assert codes[shown].tolist() == np.rint(1000 * ratios[own]).tolist()
        assert lengths.sum() == details.lengths[at] == len(details.answers[at] or "")
        assert details.clipped[at] == places[own][clipped[own]].tolist()
    assert sum(map(len, details.clipped)) == clipped.sum() == 269 + 48


def test_cut_answers_are_counted_by_group_and_told_by_answer(run: data.Run) -> None:
    made = payload(run, chosen := choose(run), read_details(run, chosen, False))
    reasons = np.array(pq.read_table(SAMPLE, columns=["finish_reason"])["finish_reason"].to_pylist())
    assert [made["ends"]["words"][code] for code in made["answers"]["end"]] == reasons[chosen.answers].tolist()
    cut = np.bincount(run.scored.table.groups, reasons == "length")
    assert made["groups"]["cut"] == cut[chosen.groups].tolist()
    points = data.points_of(run)
    assert points is not None
    assert points.values["cut"][:5].mean() == pytest.approx(0.06, abs=0.005)  # sample_data/README.md: 6 %


@pytest.mark.parametrize(
    ("column", "words", "said", "cut"),
    [
        (pa.array([True, False, None] + [True] * 5), ["true", "false"], [0, 1, -1, 0, 0, 0, 0, 0], 6),
        (pa.array(["stop"] * 5 + ["length"] * 3, pa.string_view()), ["stop", "length"], [0] * 5 + [1] * 3, 3),
        (pa.array(["length"] * 8).dictionary_encode(), ["length"], [0] * 8, 8),
    ],
    ids=["flags", "views", "dictionary"],
)
def test_ends_of_any_layout_are_told(tmp_path: Path, column: pa.Array, words: list[str], said: list[int], cut: int) -> None:
    path, table = str(tmp_path / "e.arrow"), kit.rollouts(truncated=column)
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    found = read_ends(opened(path))
    assert found is not None
    assert (found.column, found.words, found.codes.tolist()) == ("truncated", [*words, OTHER], said)
    assert found.cut.sum() == cut


def test_an_end_that_is_no_text_is_marked(tmp_path: Path) -> None:
    table = kit.rollouts(status=pa.array([b"\xff stop"] * 8).view(pa.string()))
    found = read_ends(opened(kit.write(str(tmp_path / "e.parquet"), table)))
    assert found is not None
    assert found.words == ["\ufffd stop", OTHER]


def test_of_many_ends_the_rarer_are_one(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(60)] + ["often"] * 4
    table = pa.table({"prompt_id": np.arange(64) // 2, "reward": np.arange(64.0), "status": words})
    found = read_ends(opened(kit.write(str(tmp_path / "e.parquet"), table)))
    assert found is not None
    assert (found.words[0], found.words[-1], len(found.words)) == ("often", OTHER, MOST_WORDS + 1)
    assert (found.codes == MOST_WORDS).sum() == 64 - 4 - (MOST_WORDS - 1)


@pytest.mark.parametrize(
    ("x", "widths"),
    [
        ([0.0, 1.0, 2.0, 3.0], [1.0] * 4),
        ([7.0], [1.0]),
        ([0.0, 10.0, 20.0, 22.0, 32.0], [10.0, 10.0, 6.0, 6.0, 10.0]),
    ],
)
def test_bars_by_step_are_of_one_width(x: list[float], widths: list[float]) -> None:
    left, right = charts._edges(np.array(x))
    assert (right - left).tolist() == widths
    assert (left[1:] >= right[:-1]).all()


@pytest.mark.parametrize(
    ("x", "named"),
    [
        ([7.0], [7.0]),
        ([0.0, 1.0], [0.0, 1.0]),
        ([3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [4.0, 6.0, 8.0]),
        (list(range(0, 1350, 9)), [0.0, 500.0, 1000.0, 1341.0]),
        ([0.0, 0.25, 0.6], [0.0, 0.2, 0.4, 0.6]),
        ([-1e308, 1e308], [-1e308, -5e307, 0.0, 5e307, 1e308]),
        ([1.0, np.inf], [np.inf]),
    ],
)
def test_the_last_step_is_named_below_a_plot(x: list[float], named: list[float]) -> None:
    assert charts.ticks(np.array(x)) == pytest.approx(named)


@pytest.mark.parametrize(("reward", "outcome"), [(1.0, data.ALL_HIGH), (0.0, data.ALL_LOW), (-1.0, data.ALL_LOW)])
def test_a_reward_that_all_have_is_right_or_wrong(tmp_path: Path, reward: float, outcome: int) -> None:
    table = pa.table({"step": [7] * 8, "prompt_id": [0, 1] * 4, "reward": [reward] * 8})
    run = run_of(kit.write(str(tmp_path / "o.parquet"), table))
    assert data.outcomes(run.scored).tolist() == [outcome] * 2
    colour = charts.OUTCOME_COLOURS[outcome]
    points = data.points_of(run)
    assert points is not None
    plot = charts.stacked(points, {outcome: "all alike"}, "Groups")
    assert f"var(--{colour})" in plot
    assert re.findall(r">(\d+)</text>", plot) == ["7", "0"]  # one step, one tick
    spread = data.spread_of(run.scored.table.rewards)
    assert spread is not None
    counts = re.findall(r">([\d.a-z]+)</text>", charts.bars(replace(spread, counts=np.array([[1]])), "Rewards", "x"))
    assert {"0", "1"} >= {each for each in counts if each != "x"}


def test_the_heaviest_groups_come_first(run: data.Run) -> None:
    chosen, groups = choose(run), run.scored.table.groups
    weights = np.bincount(groups, np.abs(run.scored.advantages) * run.sums.tokens)  # type: ignore[union-attr]
    assert (np.diff(weights[chosen.groups]) <= 0.0).all()
    assert groups[chosen.answers].tolist() == np.repeat(chosen.groups, chosen.counts).tolist()


def test_few_different_values_are_counted_one_by_one() -> None:
    spread = data.spread_of(np.array([0.1 + 0.2, 0.3, 1.0, np.nan, np.inf]))
    assert spread is not None
    assert (spread.discrete, spread.edges.tolist(), spread.counts.tolist()) == (True, [0.3, 1.0], [[2, 1]])
    many = data.spread_of(np.arange(100.0))
    assert many is not None
    assert (many.discrete, many.edges[0], many.edges[-1], many.counts.sum()) == (False, 0.0, 99.0, 100)
    assert data.spread_of(np.array([np.nan])) is None
    vast = data.spread_of(np.concatenate((np.arange(100.0), [-1.7e308, 1.7e308])))
    assert vast is not None
    assert vast.counts.sum() == 102


@pytest.mark.parametrize(
    ("rewards", "headline"),
    [
        ([1e308] * 8, "The mean reward of 8 answers is 1e+308. No group gave"),
        ([1.0] * 8, "is 1. No group gave a gradient: each one's answers all have the same reward (100.0 % all right)."),
        ([5.0, 2.0] * 4, "The mean reward of 8 answers is 3.5. All 4 groups gave a gradient."),
        (
            [2.0, 2.0, 7.0, 7.0, 4.0, 4.0, 7.0, 2.0],
            "75.0 % of 4 groups gave no gradient: each one's answers all have the same reward (25.0 % all 7, 25.0 % all 2,",
        ),
    ],
)
def test_headlines(tmp_path: Path, rewards: list[float], headline: str) -> None:
    table = pa.table({"prompt_id": [0, 0, 1, 1, 2, 2, 3, 3], "reward": rewards})
    run = run_of(kit.write(str(tmp_path / "h.parquet"), table))
    said = " ".join((story.headline(run, None), *story.told(run, None).values()))
    assert headline in said.replace("\N{NO-BREAK SPACE}", " ")


def test_what_cannot_be_scored_is_left_out_and_said(tmp_path: Path) -> None:
    table = kit.rollouts(reward=[1.0, 1.0, 0.0, 1.0, 3.0, None, 0.5, 0.25])
    path = kit.write(str(tmp_path / "n.parquet"), table)
    run, problems = data.read_run(opened(path), Recipe(), True)
    (expected,) = score_objective(opened(path), [Recipe()], skip=True)
    assert run.figures == expected.rows[0]
    assert [kind.severity for kind in problems.kinds()] == ["note"]
    assert np.isnan(run.scored.advantages).tolist() == [False] * 5 + [True] + [False] * 2


def test_without_a_reward_to_score_the_headline_says_so(tmp_path: Path) -> None:
    path = kit.write(str(tmp_path / "n.parquet"), kit.rollouts(step=[1, 2] * 4, reward=[np.nan] * 8))
    run = run_of(path, skip=True)
    assert story.headline(run, data.points_of(run)) == "No reward of 8 answers can be scored."


def test_views_of_texts_and_lists_are_read(tmp_path: Path) -> None:
    def listed(values: list[list[float]]) -> pa.Array:
        lengths = np.array([len(each) for each in values], dtype=np.int32)
        starts = np.cumsum(lengths, dtype=np.int32) - lengths
        return pa.ListViewArray.from_arrays(pa.array(starts), pa.array(lengths), pa.array(np.concatenate(values)))

    logps = {name: listed(kit.TOKENS[name]) for name in ("logp_new", "logp_old")}
    table = kit.rollouts(**logps, response=pa.array(list("abcdefgh"), pa.string_view()))
    path = str(tmp_path / "views.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    run = run_of(path)
    details = read_details(run, chosen := choose(run), False)
    assert details.answers == ["abcdefgh"[row] for row in chosen.answers]
    assert {row: codes for row, codes in zip(chosen.answers.tolist(), details.tokens, strict=True) if any(codes)} == {
        0: [0, 4000],
        2: [0, -4000, HIDDEN + 1],
    }
