"""The page: what was gathered, as HTML that runs nothing but its own script and loads nothing."""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib import resources

import numpy as np

from olmorl_cli import __version__
from olmorl_cli.errors import Problems
from olmorl_cli.report import story
from olmorl_cli.report.charts import OUTCOME_COLOURS, Series, bars, lines, ratios, stacked
from olmorl_cli.report.data import Points, Run, log_ratio_spread, outcomes, points_of, spread_of
from olmorl_cli.report.details import TOKENS_OF_ANSWER, Chosen, Details, choose, read_details
from olmorl_cli.report.findings import Table, findings_section
from olmorl_cli.report.markup import section, text
from olmorl_cli.report.payload import inside_html, payload
from olmorl_cli.report.waterfall import waterfall_section

MOST_FILES = 5
ROLE_WORDS = {"answer": "answer (its id)", "step": "step (of training)"}
"""Roles whose name alone could be taken for something else."""


def page_of(run: Run, problems: Problems, skip: bool) -> str:
    """The page of a run, its details read once more.

    Raises:
        InputError: a file cannot be read, or has text that is not valid.
    """
    points, chosen = points_of(run), choose(run)
    details = read_details(run, chosen, skip)
    files = [text(file.name) for file in (*run.scored.rollouts.files, *run.scored.rollouts.joined)]
    more = f" and {len(files) - MOST_FILES:,} more" if len(files) > MOST_FILES else ""
    sections = [
        findings_section(run.examined.findings, problems, Table(run, chosen)),
        _by_step(run, points),
        waterfall_section(run.examined.waterfall),
        _spreads(run),
        _groups(run, chosen, details),
        _missing(run, points, details),
        _columns(run, details),
    ]
    style, script = _part("page.css"), _part("page.js")
    return filled(
        _part("page.html"),
        {
            "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none';"
            " form-action 'none'",
            "version": __version__,
            "title": f"olmorl report: {', '.join(files[:1])}{f' and {len(files) - 1:,} more' if len(files) > 1 else ''}",
            "files": f"{', '.join(files[:MOST_FILES])}{more}",
            "headline": text(story.headline(run, points)),
            "told": _told(story.told(run, points)),
            "scope": text(story.scope(run, points)),
            "sections": "\n".join(each for each in sections if each),
            "style": style,
            "script": script,
            "data": inside_html(payload(run, chosen, details)),
        },
    )


def _told(said: Mapping[str, str]) -> str:
    lines = "".join(f"<div><dt>{text(name)}</dt><dd>{text(sentence)}</dd></div>" for name, sentence in said.items())
    return f'<dl class="told">{lines}</dl>' if lines else ""


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with its `{{names}}` replaced; what is put in is not looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _part(name: str) -> str:
    return resources.files("olmorl_cli.report").joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _figure(title: str, note: str, svg: str) -> str:
    return f"<figure><h3>{title}</h3>{f'<p>{note}</p>' if note else ''}{svg}</figure>\n"


def _key(*names: tuple[str, str]) -> str:
    return "".join(f'<span class="key c-{colour}"><span>{text(name)}</span></span>' for colour, name in names)


def _by_step(run: Run, points: Points | None) -> str:
    """Small multiples, a figure a plot."""
    if points is None:
        return ""
    values, names, terms = points.values, story.outcome_names(run), run.scored.recipe.terms
    present = {code: names[code] for code in np.unique(outcomes(run.scored)).tolist()}
    figures = []

    def line(key: str, title: str, note: str, label: str, share: bool = False) -> None:
        if key in values and np.isfinite(values[key]).any():
            plot = lines(points, [Series("", values[key])], f"{label} by step", share=share)
            figures.append(_figure(title, text(note), plot))

    line("reward", "Mean reward", "over all answers of a step", "Mean reward")
    key = _key(*((OUTCOME_COLOURS[code], name) for code, name in present.items()))
    plot = stacked(points, present, "Share of the groups kept, by step")
    figures.append(_figure("Groups", f"{key}<br>share of a step's groups; all but the kept ones give no gradient", plot))
    line(
        "cut",
        "Cut-off answers",
        f"share of all answers of a step, by {run.ends.column if run.ends else ''}",
        "Share of the answers cut off,",
        True,
    )
    if "objective" in values:
        clips = [Series("low", values["clip_low"], "second"), Series("high", values["clip_high"])]
        low, high = story.number(terms.ratio_low), story.number(terms.ratio_high)
        key = _key(("second", f"ratio < {low}, A < 0"), ("line", f"ratio > {high}, A > 0"))
        plot = lines(points, clips, "Share of tokens clipped, by step", share=True)
        figures.append(_figure("Clipped tokens", f"{key}<br>share of a step's counted tokens", plot))
    line(
        "sampler_k3",
        "Sampler against trainer",
        "k3, an estimate of KL(sampler ‖ old), nats a counted token; 0 is none",
        "Distance of the sampler",
    )
    line("length", "Answer length", "unmasked tokens an answer, mean over all answers of a step", "Mean length")
    line("objective", "Objective", story.objective_is(run), "Objective")
    note = f'<p class="hint">A point is {points.per_point:,} steps together.</p>' if points.per_point > 1 else ""
    return section("By step", note, f'<div class="grid">\n{"".join(figures)}</div>\n')


def _spreads(run: Run) -> str:
    """Histograms."""
    figures = []
    if run.scored.table.rewards is not None and (rewards := spread_of(run.scored.table.rewards)):
        figures.append(_figure("Rewards", "number of answers", bars(rewards, "Histogram of the rewards", "reward")))
    if advantages := spread_of(run.scored.advantages):
        plot = bars(advantages, "Histogram of the advantages", "advantage")
        figures.append(_figure("Advantages", "number of answers; in groups without signal the advantage is 0", plot))
    if run.tallies is not None and (spread := log_ratio_spread(run.tallies)):
        terms = run.scored.recipe.terms
        bounds = [float(np.log(bound)) for bound in (terms.ratio_low, terms.ratio_high) if 0.0 < bound < np.inf]
        beyond = f"; {spread.beyond:,} lie further out" if spread.beyond else ""
        key = _key(("negative", "A < 0"), ("positive", "A > 0"))
        note = f"{key}<br>number of unmasked tokens of kept groups, on a log scale; dashed: the clip's bounds{beyond}"
        figures.append(_figure("Log-ratios", note, ratios(spread, bounds, "Histogram of the log-ratios")))
    return section("Spreads", f'<div class="grid">\n{"".join(figures)}</div>\n') if figures else ""


def _groups(run: Run, chosen: Chosen, details: Details) -> str:
    """The table of groups, which the script fills."""
    if not chosen.groups.size:
        return ""
    exact = "row:51 and group:ID ask for exactly that one"
    if run.scored.table.steps is not None:
        exact = f"step:12, {exact}, step:12 group:ID for that step's group"
    return section(
        "Groups",
        f'<p class="hint">{" ".join(_sampled(run, chosen, details))}</p>',
        '<div class="tools" id="tools"><input id="search" type="search"'
        ' placeholder="Search: part of a group\'s id, a step, an answer\'s row" aria-label="Search groups">'
        '<select id="outcome" aria-label="Outcome"><option value="">all outcomes</option></select>'
        '<span id="count" class="hint" aria-live="polite"></span>'
        '<button id="all" type="button" hidden>Show all groups</button></div>',
        f'<p class="hint">{exact}.</p>',
        '<div class="scroll"><table id="groups"><thead></thead><tbody></tbody></table></div>',
        '<div class="tools"><button id="more" type="button" hidden>Show more</button></div>',
        "<noscript><p>The table needs scripts to be allowed.</p></noscript>",
    )


def _sampled(run: Run, chosen: Chosen, details: Details) -> list[str]:
    """What of the run the table holds, and what its columns say, in words."""
    groups, answers = run.scored.statistics.size.size, run.scored.table.groups.size
    weight = "Σ |A| × tokens" if run.sums is not None else "Σ |A|"
    said = []
    if chosen.groups.size < groups:
        said.append(f"Here are the {chosen.groups.size:,} heaviest of {groups:,} groups; all above is of the whole input.")
    if chosen.answers.size < answers:
        said.append(f"{chosen.answers.size:,} of {answers:,} answers, those of the heaviest groups, are on this page.")
    said.append(
        f"Weight is the group's share of {weight} over the whole input, of what moves the policy; the heaviest come first."
    )
    if run.ends is not None:
        said.append(f"Cut is how many of its answers were cut off, by {text(run.ends.column)}.")
    if run.sums is not None:
        said.append("Tokens are unmasked ones; clipped low and high are how many of them lie beyond the clip's bounds.")
        if chosen.detailed < answers:
            said.append(f"Tokens are there for {chosen.detailed:,} answers, at most {TOKENS_OF_ANSWER:,} an answer.")
        said.append(
            "A token's colour is its ratio: "
            '<span class="t d3">less</span> or <span class="t u3">more</span> likely than before;'
            ' <span class="t cut">clipped</span> ones have a frame.'
        )
    if details.answer is not None and len(details.answers) < answers:
        said.append(f"Texts are there for {len(details.answers):,} answers.")
    return said


def _missing(run: Run, points: Points | None, details: Details) -> str:
    said = story.missing(run, points, (details.prompt, details.answer))
    return section("Not shown", f"<ul>{''.join(f'<li>{text(each)}</li>' for each in said)}</ul>\n") if said else ""


def _columns(run: Run, details: Details) -> str:
    """Which column played which role, why, and which others are shown."""
    rollouts = run.scored.rollouts
    rows = [("group", "consecutive rows", "given as a size")] if rollouts.group_size is not None else []
    for role, choice in rollouts.choices.items():
        if role != "by":
            rows.append((ROLE_WORDS.get(role, role), " + ".join(choice.terms), choice.why))
    further = {
        "text of the prompt": details.prompt,
        "text of the answer": details.answer,
        "how the answer ended": None if run.ends is None else run.ends.column,
    }
    rows += [(what, name, "found by name") for what, name in further.items() if name is not None]
    body = "".join(f"<tr>{''.join(f'<td>{text(each)}</td>' for each in row)}</tr>" for row in rows)
    head = "<tr><th>role</th><th>column in the file</th><th>why</th></tr>"
    return section(
        "Columns", f'<div class="scroll"><table class="columns"><thead>{head}</thead><tbody>{body}</tbody></table></div>\n'
    )
