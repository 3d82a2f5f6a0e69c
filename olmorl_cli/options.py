"""Command-line options: one declaration each, and which of them commands share."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILES",
        help="Parquet, Arrow or JSON Lines files, folders or patterns, here or behind URIs; - is standard input. Without"
        " any: standard input if it is a pipe, else $OLMORL_ROLLOUTS, else ./rollouts.parquet.",
        show_default=False,
    ),
]
Join = Annotated[
    str | None,
    typer.Option(
        "--join",
        metavar="FILE",
        help="Columns from a second file (or folder, or pattern) with the same answers in any order; needs --on.",
        show_default=False,
    ),
]
On = Annotated[
    list[str] | None,
    typer.Option("--on", metavar="COL", help="Column that tells an answer in both files (repeatable).", show_default=False),
]
Group = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="COL", help="Column that tells an answer's group (repeatable).", show_default=False),
]
GroupSize = Annotated[
    str | None,
    typer.Option("-G", "--group-size", metavar="N", help="Groups are N consecutive rows.", show_default=False),
]
Step = Annotated[
    str | None,
    typer.Option("--step", metavar="COL", help="Column of the training step, part of the group's key.", show_default=False),
]
Reward = Annotated[
    list[str] | None,
    typer.Option(
        "--reward",
        metavar="COL",
        help="Column of the reward, or COL*0.5 (repeatable: their sum).",
        show_default=False,
    ),
]
Advantage = Annotated[
    str | None,
    typer.Option("--advantage", metavar="COL", help="Take the advantages from this column.", show_default=False),
]
Answer = Annotated[
    str | None,
    typer.Option(
        "--answer", metavar="COL", help="Column that tells an answer: none may stand in a group twice.", show_default=False
    ),
]
LogpNew = Annotated[
    str | None,
    typer.Option("--logp-new", metavar="COL", help="Column of the trained policy's log-probs.", show_default=False),
]
LogpOld = Annotated[
    str | None,
    typer.Option("--logp-old", metavar="COL", help="Column of the log-probs before the update.", show_default=False),
]
LogpSampler = Annotated[
    str | None,
    typer.Option("--logp-sampler", metavar="COL", help="Column of the inference engine's log-probs.", show_default=False),
]
LogpRef = Annotated[
    str | None,
    typer.Option("--logp-ref", metavar="COL", help="Column of the reference policy's log-probs.", show_default=False),
]
Mask = Annotated[
    str | None,
    typer.Option(
        "--mask", metavar="COL", help="Column that marks real tokens; without one every token is real.", show_default=False
    ),
]
Accept = Annotated[
    str | None,
    typer.Option(
        "--accept",
        metavar="compact",
        help="compact: log-probs stand only for the tokens that the mask marks.",
        show_default=False,
    ),
]
Invalid = Annotated[
    str,
    typer.Option(
        "--invalid",
        metavar="error|skip",
        help="What cannot be scored is refused, all of it gathered first, or left out and counted.",
    ),
]
RecipeName = Annotated[
    str,
    typer.Option("--recipe", metavar="NAME|FILE.toml", help="Scoring settings; the options below win over them."),
]
RecipeNames = Annotated[
    list[str] | None,
    typer.Option(
        "--recipe",
        metavar="NAME|FILE.toml",
        help="Scoring settings, a row each (repeatable); the options below win over them. [default: olmorl, grpo, dapo,"
        " dr-grpo, gspo, cispo]",
        show_default=False,
    ),
]
NormalizeStd = Annotated[
    bool | None,
    typer.Option(
        "--normalize-std/--no-normalize-std",
        help="Divide advantages by their group's standard deviation.",
        show_default=False,
    ),
]
EpsLow = Annotated[
    str | None,
    typer.Option("--eps-low", metavar="X", help="Lower clip: ratio above 1 - X. OlmoRL: 0.2.", show_default=False),
]
EpsHigh = Annotated[
    str | None,
    typer.Option("--eps-high", metavar="X", help="Upper clip: ratio below 1 + X. OlmoRL: 0.272.", show_default=False),
]
Aggregation = Annotated[
    str | None,
    typer.Option(
        "--aggregation",
        metavar="HOW",
        help="token_mean (OlmoRL), token_sum, sequence_mean_of_token_mean, sequence_mean_of_token_sum or"
        " prompt_mean_of_token_mean.",
        show_default=False,
    ),
]
SamplerCap = Annotated[
    str | None,
    typer.Option(
        "--sampler-cap", metavar="X", help="Weight tokens by min(old / sampler probability, X).", show_default=False
    ),
]
KeepZeroSignal = Annotated[
    bool, typer.Option("--keep-zero-signal", help="Count groups whose rewards are all identical too.")
]
Diagnostics = Annotated[
    bool,
    typer.Option(
        "--diagnostics",
        help="More figures: clip_changed, quantiles of the ratio, approx_kl_k1 and _k2, and the sampler's tails.",
    ),
]
PerAnswer = Annotated[
    bool, typer.Option("--per-answer", help="Write what each answer's tokens add up to, one row an answer.")
]
PerToken = Annotated[
    bool, typer.Option("--per-token", help="Write each token's term and the objective's gradient by it, one row a token.")
]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="CODE|CODE>X",
        help="Exit with 1 where this check fires, or its value is above X, as in --fail-on 'zero_signal>0.6' (repeatable).",
        show_default=False,
    ),
]
Top = Annotated[
    str | None,
    typer.Option(
        "--top", metavar="N", help="Only the N answers of greatest |advantage| x tokens, with texts.", show_default=False
    ),
]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="step|COL", help="One row for each step, or value of a column.", show_default=False),
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="local|ray",
        help="Who reads and scores: this process, or tasks on a Ray cluster. [default: $OLMORL_ENGINE, else local]",
        show_default=False,
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT",
        help="The Ray cluster. [default: $RAY_ADDRESS, else one is started here]",
        show_default=False,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "-f",
        "--format",
        metavar="table|jsonl|csv|parquet|arrow",
        help="[default: by the suffix of -o; table on a terminal, else jsonl]",
        show_default=False,
    ),
]
Output = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write there instead of to standard output.", show_default=False),
]
ProblemsFile = Annotated[
    str | None,
    typer.Option(
        "--problems",
        metavar="FILE.jsonl",
        help="Write what is wrong with the data there too, a JSON object for each place named.",
        show_default=False,
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No notes and no progress on standard error.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

Options = Mapping[str, tuple[Any, Any]]
"""Parameters that commands share: name → its declaration and its default."""

ANSWERS: Options = {
    "files": (Files, None),
    "join": (Join, None),
    "on": (On, None),
    "group": (Group, None),
    "group_size": (GroupSize, None),
    "step": (Step, None),
    "reward": (Reward, None),
    "advantage": (Advantage, None),
    "answer": (Answer, None),
}
"""The input's files and the columns of its answers."""
TOKENS: Options = {
    "logp_new": (LogpNew, None),
    "logp_old": (LogpOld, None),
    "logp_sampler": (LogpSampler, None),
    "logp_ref": (LogpRef, None),
    "mask": (Mask, None),
    "accept": (Accept, None),
}
"""The columns of its tokens."""
INVALID: Options = {"invalid": (Invalid, "error")}
ENGINE: Options = {"engine": (Engine, None), "ray_address": (RayAddress, None)}
RESULT: Options = {"format": (Format, None), "output": (Output, None)}
OTHERS: Options = {"problems": (ProblemsFile, None), "quiet": (Quiet, False), "debug": (Debug, False)}
