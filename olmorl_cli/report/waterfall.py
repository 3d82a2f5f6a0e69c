"""From all tokens to those that move the policy: a bar each, every bar where the one before ends."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from olmorl_cli.report.markup import section, text
from olmorl_cli.report.story import percent

UNMASKED = "unmasked"
LINES = {
    "all": "All tokens",
    "masked": "Masked: not written by the policy",
    UNMASKED: "Unmasked: written by the policy",
    "zero_signal": "In groups without signal",
    "clipped_low": "Held by the clip from below",
    "clipped_high": "Held by the clip from above",
    "cut": "Cut by the sampler's bounds",
    "live": "Left to move the policy",
}
"""The waterfall's lines by what `core.waterfall` calls them, and one that is the sum of those after it."""
SUMS = {"all": "whole", UNMASKED: "whole", "live": "live"}
"""Lines whose bar begins at the left: they are not taken off."""
NOTE = (
    "Every token is in one line, the first that fits. Σ |A| is the sum of |advantage| over unmasked tokens: how much a line"
    " would move the policy. A bar is the line's part of all tokens."
)


def waterfall_section(fall: Sequence[Mapping[str, Any]] | None) -> str:
    """The waterfall, with each line's share of all tokens, of the unmasked ones, and of Σ |A| over these."""
    if not fall or not fall[0]["tokens"]:
        return ""
    lines = {line["name"]: (line["tokens"], line["mass"]) for line in fall}
    whole, masked = lines["all"][0], lines["masked"][0]
    unmasked = (whole - masked, sum(mass for name, (_, mass) in lines.items() if name not in ("all", "masked")))
    if masked:
        lines[UNMASKED] = unmasked
    rows, left = [], whole
    for name, said in LINES.items():
        tokens, mass = lines.get(name, (0, 0.0))
        if not tokens and name not in ("all", "live"):
            continue
        left = left if name in SUMS else left - tokens
        shares = [_share(tokens, whole), _share(tokens, unmasked[0]), _share(mass, unmasked[1])]
        if masked and name in ("all", "masked"):
            shares[1:] = ["", ""]
        if not masked:
            del shares[1]
        cells = "".join(f'<td class="n">{share}</td>' for share in (f"{tokens:,}", *shares))
        kind, start = SUMS.get(name, "lost"), 0 if name in SUMS else left
        bar = f'x="{100 * start / whole:.2f}%" width="{max(100 * tokens / whole, 0.2):.2f}%" height="100%"'
        rows.append(
            f'<tr class="{kind}"><td>{text(said)}</td>{cells}'
            f'<td class="bar"><svg aria-hidden="true"><rect {bar}></rect></svg></td></tr>'
        )
    titles = ["tokens", "of all tokens", "of unmasked tokens", "of Σ |A|"]
    if not masked:
        del titles[2]
    heads = "".join(f'<th class="n">{title}</th>' for title in titles)
    head = f'<thead><tr><th></th>{heads}<th class="bar"></th></tr></thead>'
    table = f'<div class="scroll"><table class="fall">{head}<tbody>{"".join(rows)}</tbody></table></div>'
    return section("Where the gradient went", f'<p class="hint">{NOTE}</p>', table)


def _share(part: float, whole: float) -> str:
    return percent(part / whole) if whole and np.isfinite(whole) else "–"
