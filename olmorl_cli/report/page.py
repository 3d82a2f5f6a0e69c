"""The page: what was gathered, as HTML that runs nothing but its own script and loads nothing."""

import base64
import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from importlib import resources

import numpy as np

from olmorl_cli import __version__
from olmorl_cli.checks.finding import Finding, States
from olmorl_cli.errors import Problems, visible, without_secrets
from olmorl_cli.report import story
from olmorl_cli.report.charts import OUTCOME_COLOURS, Series, bars, lines, ratios, stacked
from olmorl_cli.report.data import Points, Run, log_ratio_spread, outcomes, points_of, spread_of
from olmorl_cli.report.details import TOKENS_OF_ANSWER, Chosen, Details, choose, read_details
from olmorl_cli.report.payload import inside_html, payload

FALL = {
    "all": "All tokens",
    "masked": "Masked: not written by the policy",
    "zero_signal": "In groups without signal",
    "clipped_low": "Held by the clip from below",
    "clipped_high": "Held by the clip from above",
    "cut": "Cut by the sampler's bounds",
    "live": "Left to move the policy",
}
"""Lines of the waterfall."""
MOST_FILES, MOST_PLACES = 5, 8


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
        _findings(run.examined.findings, problems),
        _waterfall(run),
        _by_step(run, points),
        _spreads(run),
        _groups(run, chosen, details),
        _missing(run, points, details),
        _columns(run),
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
            "more": text(story.clips(run)),
            "scope": text(story.scope(run, points)),
            "sections": "\n".join(section for section in sections if section),
            "style": style,
            "script": script,
            "data": inside_html(payload(run, chosen, details)),
        },
    )


def text(value: object) -> str:
    """Anything as text of the page: no markup, no control characters, no secrets of URIs."""
    return html.escape(visible(without_secrets(str(value))))


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with its `{{names}}` replaced; what is put in is not looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _part(name: str) -> str:
    return resources.files("olmorl_cli.report").joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _section(title: str, *parts: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{''.join(parts)}</section>"


def _findings(findings: Sequence[Finding], problems: Problems) -> str:
    """What the checks and the reading say: what fired first, what passed folded away."""
    severities = ("error", "warning", "note")
    fired = sorted((each for each in findings if each.fired), key=lambda each: severities.index(each.severity))
    items = [_finding(finding) for finding in fired]
    items += [
        f'<li class="{kind.severity}"><span class="word">data</span>{text(kind.line())}</li>'
        for kind in problems.kinds()
        if kind.severity != "error"
    ]
    parts = [f'<ul class="findings">{"".join(items)}</ul>' if items else '<p class="hint">No check found anything.</p>']
    for state, word in ((States.PASSED, "passed"), (States.NOT_AVAILABLE, "not available")):
        others = [_finding(finding) for finding in findings if finding.state is state]
        if others:
            said = f"{story.count(len(others), 'check')} {word}"
            parts.append(f'<details><summary>{said}</summary><ul class="findings">{"".join(others)}</ul></details>')
    return _section("Findings", *parts) if findings or items else ""


def _finding(finding: Finding) -> str:
    shown = finding.severity if finding.fired else str(finding.state)
    where = "; ".join(
        f"{text(kind)} {', '.join(text(place) for place in places[:MOST_PLACES])}{' …' if len(places) > MOST_PLACES else ''}"
        for kind, places in finding.where.items()
        if places
    )
    said = " ".join(f"{text(part[0].upper() + part[1:])}." for part in (finding.message, finding.action) if part)
    said += f" In {where}." if where else ""
    return f'<li class="{shown}"><span class="word">{text(finding.code.replace("_", " "))}</span>{said}</li>'


def _waterfall(run: Run) -> str:
    """From all tokens to those that move the policy, a bar each, every bar where the one before ends."""
    fall = run.examined.waterfall
    if not fall or not fall[0]["tokens"]:
        return ""
    whole, mass = fall[0]["tokens"], fall[0]["mass"]
    rows, left = [], float(whole)
    for line in fall:
        tokens, name = line["tokens"], line["name"]
        if not tokens and name not in ("all", "live"):
            continue
        start = 0.0 if name in ("all", "live") else left - tokens
        left = left if name in ("all", "live") else start
        share = story.percent(line["mass"] / mass) if mass and np.isfinite(mass) else "–"
        kind = {"all": "whole", "live": "live"}.get(name, "lost")
        rows.append(
            f'<tr class="{kind}"><td>{text(FALL.get(name, name))}</td><td class="n">{tokens:,}</td>'
            f'<td class="n">{story.percent(tokens / whole)}</td><td class="bar"><svg aria-hidden="true"><rect'
            f' x="{100 * start / whole:.2f}%" width="{max(100 * tokens / whole, 0.2):.2f}%" height="100%"></rect></svg></td>'
            f'<td class="n lesser">{share}</td></tr>'
        )
    head = '<tr><th></th><th class="n">tokens</th><th class="n">share</th><th></th><th class="n lesser">of Σ |A|</th></tr>'
    table = f'<div class="scroll"><table class="fall"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'
    note = "Every token is in one line, the first that fits. Σ |A| weighs it by its answer's advantage."
    return _section("Where the gradient went", f'<p class="hint">{note}</p>', table)


def _figure(title: str, note: str, svg: str) -> str:
    return f"<figure><h3>{title}</h3>{f'<p>{note}</p>' if note else ''}{svg}</figure>\n"


def _key(*names: tuple[str, str]) -> str:
    return "".join(f'<span class="key c-{colour}"><span>{text(name)}</span></span>' for colour, name in names)


def _by_step(run: Run, points: Points | None) -> str:
    """Small multiples, a figure a plot."""
    if points is None:
        return ""
    values, names = points.values, story.outcome_names(run)
    present = {code: names[code] for code in np.unique(outcomes(run.scored)).tolist()}
    key = _key(*((OUTCOME_COLOURS[code], name) for code, name in present.items()))
    figures = []
    if "reward" in values:
        figures.append(_figure("Mean reward", "", lines(points, [Series("", values["reward"])], "Mean reward by step")))
    figures.append(_figure("Groups", key, stacked(points, present, "Share of the groups kept, by step")))
    if "objective" in values:
        plot = lines(points, [Series("", values["objective"])], "Objective by step")
        figures.append(_figure("Objective", "of kept groups; higher is what training seeks", plot))
        clips = [Series("low", values["clip_low"], "second"), Series("high", values["clip_high"])]
        key = _key(("second", "low: A < 0"), ("line", "high: A > 0"))
        figures.append(_figure("Clipped tokens", key, lines(points, clips, "Share of tokens clipped, by step", share=True)))
    if "sampler_k3" in values:
        plot = lines(points, [Series("", values["sampler_k3"])], "Distance of the sampler by step")
        figures.append(_figure("Sampler against trainer", "k3, an estimate of KL(sampler ‖ old); 0 is none", plot))
    if "length" in values:
        plot = lines(points, [Series("", values["length"])], "Mean length by step")
        figures.append(_figure("Answer length", "real tokens, mean", plot))
    note = f'<p class="hint">A point is {points.per_point:,} steps together.</p>' if points.per_point > 1 else ""
    return _section("By step", note, f'<div class="grid">\n{"".join(figures)}</div>\n')


def _spreads(run: Run) -> str:
    """Histograms."""
    figures = []
    if run.scored.table.rewards is not None and (rewards := spread_of(run.scored.table.rewards)):
        figures.append(_figure("Rewards", "answers", bars(rewards, "Histogram of the rewards", "reward")))
    if advantages := spread_of(run.scored.advantages):
        plot = bars(advantages, "Histogram of the advantages", "advantage")
        figures.append(_figure("Advantages", "answers; 0 in groups without signal", plot))
    if run.tallies is not None and (spread := log_ratio_spread(run.tallies)):
        terms = run.scored.recipe.terms
        bounds = [float(np.log(bound)) for bound in (terms.ratio_low, terms.ratio_high) if 0.0 < bound < np.inf]
        beyond = f"; {spread.beyond:,} lie further out" if spread.beyond else ""
        key = _key(("negative", "A < 0"), ("positive", "A > 0")) + f"tokens of kept groups; dashed: the clip{beyond}"
        figures.append(_figure("Log-ratios", key, ratios(spread, bounds, "Histogram of the log-ratios")))
    return _section("Spreads", f'<div class="grid">\n{"".join(figures)}</div>\n') if figures else ""


def _groups(run: Run, chosen: Chosen, details: Details) -> str:
    """The table of groups, which the script fills."""
    if not chosen.groups.size:
        return ""
    return _section(
        "Groups",
        f'<p class="hint">{" ".join(_sampled(run, chosen, details))}</p>',
        '<div class="tools"><input id="search" type="search" placeholder="Search: part of a group\'s id, or a step"'
        ' aria-label="Search groups">'
        '<select id="outcome" aria-label="Outcome"><option value="">all outcomes</option></select>'
        '<span id="count" class="hint" aria-live="polite"></span></div>',
        '<div class="scroll"><table id="groups"><thead></thead><tbody></tbody></table></div>',
        '<div class="tools"><button id="more" type="button" hidden>Show more</button></div>',
        "<noscript><p>The table needs scripts to be allowed.</p></noscript>",
    )


def _sampled(run: Run, chosen: Chosen, details: Details) -> list[str]:
    """What of the run the table holds, in words."""
    groups, answers = run.scored.statistics.size.size, run.scored.table.groups.size
    weight = "Σ |A| × tokens" if run.sums is not None else "Σ |A|"
    said = [f"Weight is the group's share of {weight}, of what moves the policy; the heaviest come first."]
    if chosen.groups.size < groups:
        said.append(f"Here are the {chosen.groups.size:,} heaviest of {groups:,} groups.")
    if chosen.answers.size < answers:
        said.append(f"{chosen.answers.size:,} of {answers:,} answers, those of the heaviest groups, are on this page.")
    if run.sums is not None:
        if chosen.detailed < answers:
            said.append(f"Tokens are there for {chosen.detailed:,} of them, at most {TOKENS_OF_ANSWER:,} an answer.")
        said.append(
            "A token's colour is its ratio: "
            '<span class="t d3">less</span> or <span class="t u3">more</span> likely than before;'
            ' <span class="t cut">clipped</span> ones have a frame.'
        )
    if details.answer is not None and len(details.answers) < answers:
        said.append(f"Texts are there for {len(details.answers):,} of them.")
    return said


def _missing(run: Run, points: Points | None, details: Details) -> str:
    said = story.missing(run, points, (details.prompt, details.answer))
    return _section("Not shown", f"<ul>{''.join(f'<li>{text(each)}</li>' for each in said)}</ul>\n") if said else ""


def _columns(run: Run) -> str:
    """Which column played which role."""
    rows = []
    for role, column in run.scored.rollouts.columns().items():
        named = "consecutive rows" if column is None else " + ".join(column) if isinstance(column, list) else column
        rows.append(f"<tr><td>{text(role)}</td><td>{text(named)}</td></tr>")
    return _section("Columns", f'<div class="scroll"><table><tbody>{"".join(rows)}</tbody></table></div>\n')
