"""Recipes: what each field allows, what is refused and in which words, and the named ones."""

import dataclasses
import math

import numpy as np
import pytest

from olmorl_cli.core.named import NAMED
from olmorl_cli.core.recipes import CHOICES, KL_ESTIMATORS, Recipe, Terms

# The words of every choice, as the design of the recipe file lists them; the first is OlmoRL's.
WORDS = {
    "center": ["group_mean", "leave_one_out_mean"],
    "scale": ["none", "group_std", "batch_std", "leave_one_out_std"],
    "ddof": [0, 1],
    "size_1": ["zero", "raw"],
    "zero_std": ["divide", "skip"],
    "zero_signal_groups": ["dropped", "kept"],
    "surrogate": ["ratio_clip", "cispo"],
    "ratio": ["old", "sampler"],
    "ratio_level": ["token", "sequence_mean"],
    "aggregation": [
        "token_mean",
        "token_sum",
        "sequence_mean_of_token_mean",
        "sequence_mean_of_token_sum",
        "sum_over_constant",
        "prompt_mean_of_token_mean",
    ],
    "sampler_mode": ["none", "truncate", "mask", "keep_or_drop"],
    "sampler_level": ["token", "sequence_product", "sequence_geometric_mean"],
}
# Numbers: the least value, whether it is itself allowed, and whether none is.
NUMBERS = {
    "std_eps": (0.0, True, False),
    "eps_low": (0.0, True, True),
    "eps_high": (0.0, True, True),
    "dual_clip": (0.0, False, True),
    "delta": (0.0, False, True),
    "log_ratio_low": (-math.inf, False, True),
    "log_ratio_high": (-math.inf, False, True),
    "divisor": (0.0, False, True),
    "sampler_low": (0.0, True, True),
    "sampler_cap": (0.0, False, True),
    "sampler_log_clamp": (0.0, False, True),
    "kl_coefficient": (-math.inf, False, False),
}
NOT_NUMBERS = [math.nan, math.inf, -math.inf, True, False, "1", "", [1.0], (), {}, 1j, 10**400]
# What makes a value of a field complete.
BESIDE = {
    "aggregation": {"divisor": 2.0},
    "sampler_mode": {"sampler_cap": 2.0},
    "kl_coefficient": {"kl": "k3"},
}


def short(value):
    """An id of bearable length."""
    return repr(value)[:20]


def test_every_field_is_tested_here():
    """Besides name, kl and advantage_clip, which have tests of their own."""
    fields = {f.name for f in dataclasses.fields(Recipe)}
    assert fields == {*WORDS, *NUMBERS, "name", "kl", "advantage_clip"}
    assert {field: list(words) for field, words in CHOICES.items()} == WORDS
    assert list(KL_ESTIMATORS) == ["k1", "k2", "k3", "abs"]


def test_defaults_are_olmorls():
    """arXiv 2512.13961, section 4.4.1: centred, 0.2 and 0.272, token mean, zero-signal groups filtered, no KL."""
    recipe = Recipe()
    assert {field: getattr(recipe, field) for field in WORDS} == {field: words[0] for field, words in WORDS.items()}
    assert (recipe.std_eps, recipe.eps_low, recipe.eps_high, recipe.kl_coefficient) == (1e-6, 0.2, 0.272, 0.0)
    left = set(NUMBERS) - {"std_eps", "eps_low", "eps_high", "kl_coefficient"} | {"kl", "advantage_clip"}
    assert {getattr(recipe, field) for field in left} == {None}


@pytest.mark.parametrize(("field", "word"), [(field, word) for field, words in WORDS.items() for word in words])
def test_every_word_is_taken(field, word):
    """In Python, and as the key of a recipe file."""
    settings = {field: word, **BESIDE.get(field, {})}
    assert getattr(Recipe(**settings), field) == word
    assert getattr(Recipe.from_mapping(settings, name="x"), field) == word


@pytest.mark.parametrize("field", WORDS)
@pytest.mark.parametrize("value", ["", "other", "NONE", None, True, 2, 0.5, math.nan, ["token"], {}], ids=short)
def test_a_bad_choice_is_refused_with_the_allowed_ones(field, value):
    """The message names the field, its words and what was got."""
    words = ", ".join(map(str, WORDS[field]))
    with pytest.raises(ValueError) as caught:
        Recipe(**{field: value})
    assert str(caught.value) == f"{field} must be one of {words}, got {value!r}"


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", [*NOT_NUMBERS, None], ids=short)
def test_what_is_no_finite_number_is_refused(field, value):
    """None only where the field may be left open."""
    if value is None and NUMBERS[field][2]:
        assert getattr(Recipe(**{field: None}), field) is None
        return
    with pytest.raises(ValueError, match=f"^{field.replace('kl_', 'kl.')} must be a finite number in .*, got"):
        Recipe(**BESIDE.get(field, {}), **{field: value})


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", [-1e300, -1.0, -5e-324, 0.0, 5e-324, 1.0, 2, 1e300])
def test_numbers_lie_in_their_interval(field, value):
    """A whole number is taken as a float."""
    least, included, _ = NUMBERS[field]
    if value > least or (included and value == least):
        taken = getattr(Recipe(**BESIDE.get(field, {}), **{field: value}), field)
        assert (type(taken), taken) == (float, value)
    else:
        with pytest.raises(ValueError, match=f"^{field} must be a finite number in"):
            Recipe(**{field: value})


@pytest.mark.parametrize("eps_low", [1.0 + 1e-12, 1.5, 2.0 - 1e-12])
def test_eps_low_between_1_and_2_is_refused(eps_low):
    """More often a bound written for an offset; from 2 on it never binds."""
    with pytest.raises(ValueError, match=r"^eps_low must be in \[0, 1\].*got"):
        Recipe(eps_low=eps_low)
    assert Recipe(eps_low=2.0).terms.ratio_low == -1.0


def test_bounds_of_the_ratio():
    """1 - eps_low and 1 + eps_high; infinite without one."""
    assert (Recipe(eps_low=0.25).terms.ratio_low, Recipe(eps_high=0.5).terms.ratio_high) == (0.75, 1.5)
    assert (Recipe(eps_low=None).terms.ratio_low, Recipe(eps_high=None).terms.ratio_high) == (-math.inf, math.inf)


@pytest.mark.parametrize("clip", [(-10.0, 10.0), [-2, 3], (0, 0)])
def test_advantage_clip(clip):
    """Two numbers in order, kept as a tuple of floats."""
    assert Recipe(advantage_clip=clip).advantage_clip == (float(clip[0]), float(clip[1]))


@pytest.mark.parametrize(
    "clip",
    [(1,), (1, 2, 3), (2, 1), (-math.inf, 1), (math.nan, 1), (0, "1"), (None, 1), (False, 1), 5.0, "01", {}],
    ids=short,
)
def test_a_bad_advantage_clip_is_refused(clip):
    """Neither open nor in the wrong order."""
    with pytest.raises(ValueError, match=r"^advantage_clip must be"):
        Recipe(advantage_clip=clip)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"aggregation": "sum_over_constant"}, "^divisor must be a number"),
        ({"sampler_mode": "truncate"}, "^sampler_mode truncate needs sampler_low or sampler_cap"),
        ({"sampler_mode": "mask"}, "^sampler_mode mask needs"),
        ({"sampler_mode": "keep_or_drop"}, "^sampler_mode keep_or_drop needs"),
        ({"kl": "k4"}, "^kl estimator must be one of k1, k2, k3, abs, got 'k4'"),
        ({"kl": "none"}, "^kl estimator must be one of"),
        ({"kl": True}, "^kl estimator must be one of"),
    ],
)
def test_fields_that_need_one_another(settings, words):
    """The message names what is missing."""
    with pytest.raises(ValueError, match=words):
        Recipe(**settings)


def test_an_unknown_key_is_refused_with_the_known_ones():
    """Those that a recipe file may have: all but the name and the coefficient, which stands inside kl."""
    for key in ("eps", "name", "kl_coefficient", "Scale"):
        with pytest.raises(ValueError, match=f"unknown key '{key}'") as caught:
            Recipe.from_mapping({"scale": "none", key: 1}, name="x")
        listed = str(caught.value).split("the keys are ")[1].split(", ")
        assert sorted(listed) == sorted({*WORDS, *NUMBERS, "kl", "advantage_clip"} - {"kl_coefficient"})


def test_none_in_a_recipe_file():
    """Leaves a number open; it is itself a word of scale and sampler_mode, and nothing else."""
    open_ = [field for field, (_, _, optional) in NUMBERS.items() if optional]
    recipe = Recipe.from_mapping(dict.fromkeys([*open_, "advantage_clip", "scale", "sampler_mode", "kl"], "none"), name="x")
    assert {getattr(recipe, field) for field in [*open_, "advantage_clip", "kl"]} == {None}
    assert (recipe.scale, recipe.sampler_mode, recipe.kl_coefficient) == ("none", "none", 0.0)
    for field in ("std_eps", "center", "ddof", "aggregation"):
        with pytest.raises(ValueError, match=f"^{field} must be"):
            Recipe.from_mapping({field: "none"}, name="x")


def test_what_a_recipe_file_leaves_out_is_olmorls():
    """And the name is the caller's."""
    assert Recipe.from_mapping({}, name="olmorl") == Recipe()
    assert Recipe.from_mapping({"eps_high": 0.28}, name="mine") == Recipe(name="mine", eps_high=0.28)


def test_kl_in_a_recipe_file():
    """A table of two keys."""
    recipe = Recipe.from_mapping({"kl": {"estimator": "k3", "coefficient": 0.05}}, name="x")
    assert (recipe.kl, recipe.kl_coefficient) == ("k3", 0.05)


@pytest.mark.parametrize(
    "kl",
    [
        "k3", 0.05, True, [], {}, {"estimator": "k3"}, {"coefficient": 1.0},
        {"estimator": "k3", "coefficient": 1.0, "clip": 2.0}, {"estimator": "k9", "coefficient": 1.0},
        {"estimator": "k3", "coefficient": math.nan}, {"estimator": "k3", "coefficient": "1"},
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_kl_is_refused(kl):
    """The message begins with the key."""
    with pytest.raises(ValueError, match=r"^kl .*got"):
        Recipe.from_mapping({"kl": kl}, name="x")


@pytest.mark.parametrize(
    ("settings", "roles"),
    [
        ({}, {"logp_new", "logp_old"}),
        ({"ratio": "sampler"}, {"logp_new", "logp_sampler"}),
        ({"sampler_mode": "mask", "sampler_cap": 2.0}, {"logp_new", "logp_old", "logp_sampler"}),
        ({"ratio": "sampler", "sampler_mode": "mask", "sampler_low": 0.5}, {"logp_new", "logp_old", "logp_sampler"}),
        ({"kl": "k1"}, {"logp_new", "logp_old", "logp_ref"}),
    ],
)
def test_roles_that_the_objective_reads(settings, roles):
    """No column is asked for that nothing reads."""
    assert Recipe(**settings).needs == roles


def test_terms_are_the_fields_that_act_on_tokens():
    """Recipes that differ elsewhere share them; recipes that differ in one of them do not."""
    fields = {f.name for f in dataclasses.fields(Terms)}
    on_answers = {"center", "scale", "ddof", "size_1", "zero_std", "zero_signal_groups", "aggregation"}
    for field, words in WORDS.items():
        other = Recipe(**{field: words[-1]}, divisor=2.0, sampler_cap=2.0).terms
        assert (other == Recipe(divisor=2.0, sampler_cap=2.0).terms) == (field in on_answers) == (field not in fields)
    assert hash(Recipe().terms) == hash(Recipe(name="other", std_eps=0.5).terms)


def test_a_recipe_cannot_be_changed():
    """It is a value: frozen, and equal where its fields are."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Recipe().scale = "group_std"
    assert dataclasses.replace(Recipe(), eps_high=0.2) == Recipe(eps_high=0.2)
    assert Recipe(std_eps=np.float64(0.5)) == Recipe(std_eps=0.5)


@pytest.mark.parametrize("name", NAMED)
def test_named_recipes(name):
    """Each constructs, is called what it is listed as, and says where it is from: a paper, or a trainer's commit."""
    recipe = NAMED[name]()
    assert recipe.name == name
    source = NAMED[name].__doc__
    assert "arXiv" in source or any(len(word.strip("(),:")) == 8 and word.strip("(),:").isalnum() for word in source.split())


def test_names_of_the_recipes():
    """Those that the design promises; olmorl is the default one."""
    promised = (
        "olmorl olmorl-tis grpo dapo dr-grpo gspo cispo rloo open-instruct trl verl openrlhf nemo-rl slime skyrl prime-rl"
    )
    assert list(NAMED) == promised.split()
    assert NAMED["olmorl"]() == Recipe()
