"""The role table: which columns can play which part, by name and type, and how one is chosen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import types

from olmorl_cli.errors import InputError


def storage_type(kind: pa.DataType) -> pa.DataType:
    """The type without extension types around it."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def is_number(kind: pa.DataType) -> bool:
    """Bool, any integer, float or decimal; a column of nulls only counts."""
    kind = storage_type(kind)
    if types.is_dictionary(kind):
        return is_number(kind.value_type)
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_null(kind)
    )


def is_id(kind: pa.DataType) -> bool:
    """Anything that can be told equal or not by its value, and written."""
    kind = storage_type(kind)
    return not types.is_interval(kind) and not (types.is_nested(kind) and not is_list(kind) and not types.is_struct(kind))


def is_text(kind: pa.DataType) -> bool:
    """Text of any Arrow layout."""
    kind = storage_type(kind)
    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_list(kind: pa.DataType) -> bool:
    """Any of Arrow's list layouts."""
    kind = storage_type(kind)
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def is_number_list(kind: pa.DataType) -> bool:
    """A list, of any layout, of numbers; a column of nulls only counts."""
    kind = storage_type(kind)
    return bool(types.is_null(kind) or (is_list(kind) and is_number(kind.value_type)))


def is_listed(accepts: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    """Whether a column holds, in each row, a list of what the role takes: one value an answer, one row a prompt."""
    kind = storage_type(kind)
    return is_list(kind) and accepts(kind.value_type) and not accepts(kind)


@dataclass(frozen=True)
class Role:
    """A part that a column can play.

    Attributes:
        name: of the role, as results call it.
        option: that names the column outright.
        ranks: columns that are taken for it, the first that is there wins. What stands in an earlier rank says plainly
            that it plays the role; of two in one rank neither does so better than the other.
        accepts: whether a type will do.
        wanted: the types in words.
        repeating: names that play the role only where their values repeat.
        asks: when two columns of one rank are refused, so that the user chooses: "" never, "names" wherever both are
            there, "values" where their values differ, "groups" where they group the answers differently.
    """

    name: str
    option: str
    ranks: tuple[tuple[str, ...], ...]
    accepts: Callable[[pa.DataType], bool]
    wanted: str
    repeating: tuple[str, ...] = ()
    asks: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all ranks, in order."""
        return tuple(name for rank in self.ranks for name in rank)

    def rank(self, column: str) -> int:
        """The rank of a column that one of the names matches, whatever its case."""
        folded = column.casefold()
        return next(number for number, rank in enumerate(self.ranks) if column in rank or folded in map(str.casefold, rank))

    def rivals(self, chosen: str, others: Sequence[str]) -> list[str]:
        """Those of `others` that say as well that they play the role: of one rank, and not the same name in other case."""
        rank = self.rank(chosen)
        return [name for name in others if self.rank(name) == rank and name.casefold() != chosen.casefold()]

    def fits(self, kind: pa.DataType) -> bool:
        """Whether a column of this type can play the role, as it is or with one value an answer in a list a row."""
        return self.accepts(kind) or (self.opens and is_listed(self.accepts, kind))

    @property
    def opens(self) -> bool:
        """Whether the role's column has one value an answer, in a list where a row is a prompt."""
        return self.name not in ("group", "step", "by")

    def lists_answers(self, column: str, kind: pa.DataType) -> bool:
        """Whether a column of this type lists values of answers, in a file with a row a prompt, or a batch of several."""
        if not self.opens:
            return lists_ids(self, column, kind)
        return is_list(kind) if self.name == "answer" else is_listed(self.accepts, kind)


_NUMBER = "a number (bool, integer, float or decimal)"
_LIST = "a list of numbers"
_ID = "an id (text, an integer, or anything else that can be compared)"


def _role(
    name: str, accepts: Callable[[pa.DataType], bool], wanted: str, names: str = "", repeating: str = "", asks: str = ""
) -> tuple[str, Role]:
    """A role by its name; a bar in `names` begins a new rank."""
    ranks = tuple(tuple(rank.split()) for rank in names.split("|"))
    return name, Role(name, f"--{name.replace('_', '-')}", ranks, accepts, wanted, tuple(repeating.split()), asks)


ROLES: dict[str, Role] = dict(
    (
        _role(
            "group",
            is_id,
            _ID,
            """group_id group_uid group_index group_idx
            | prompt_id problem_id example_id task_id _ng_task_index question_id data_id instance_id qid prompt_idx
            problem_idx prompt_hash task_hash | group | uid unique_id uuid id index
            | prompt input query question problem input_prompt instruction prompts queries
            | prompt_ids prompt_tokens prompt_token_ids input_tokens""",
            repeating="uid unique_id uuid id index",
            asks="groups",
        ),
        _role("step", is_id, _ID, "step global_step training_step train_step iteration gen_step"),
        _role(
            "reward",
            is_number,
            _NUMBER,
            """reward rewards total_reward score scores scalar_reward reward_score
            | final_reward task_reward task_rewards filtered_rewards | is_correct correct acc accuracy passed verdict
            | correctness_math_verify rollout_labels rollout_grades ratings""",
            asks="values",
        ),
        _role("advantage", is_number, _NUMBER),
        _role("by", is_id, _ID),
        _role(
            "answer",
            is_id,
            _ID,
            """answer_id rollout_id trajectory_id traj_id sample_id sequence_id completion_id response_id request_id
            episode_id sample_idx sample_index traj_idx rollout_idx rollout_index _ng_rollout_index generation_index
            completion_index repetition_id rollout_number""",
        ),
        _role(
            "logp_new",
            is_number_list,
            _LIST,
            """new_logprobs new_log_probs logp_new new_logp
            | trainer_logprobs policy_logprobs current_logprobs per_token_logps action_log_probs | log_probs""",
            asks="names",
        ),
        _role(
            "logp_old",
            is_number_list,
            _LIST,
            "old_logprobs old_log_probs logp_old old_logp old_per_token_logps | prev_logprobs",
            asks="names",
        ),
        _role(
            "logp_sampler",
            is_number_list,
            _LIST,
            """rollout_logprobs rollout_log_probs inference_logprobs generation_logprobs generation_log_probs
            sampling_logprobs sampling_per_token_logps logp_sampler sampler_logprobs vllm_logprobs behavior_logprobs
            | output_logprobs completion_logprobs | logprobs logps""",
            asks="names",
        ),
        _role(
            "logp_ref",
            is_number_list,
            _LIST,
            """ref_logprobs ref_log_probs ref_log_prob logp_ref reference_logprobs ref_per_token_logps
            | base_action_log_probs""",
            asks="names",
        ),
        _role(
            "mask",
            is_number_list,
            _LIST,
            """loss_mask loss_masks completion_mask response_mask token_loss_mask action_mask assistant_mask
            assistant_masks new_response_mask mask masks | labels""",
        ),
    )
)
"""Every role by its name; names in the order in which they are tried."""

GROUP_IDS = 3
"""Ranks of the group's names that are ids of groups or prompts; after them come ids that may be of anything, and texts."""


def lists_ids(role: Role, column: str, kind: pa.DataType) -> bool:
    """Whether a column of this type has, in a file of lists, an id for each answer: not one prompt's tokens or chat."""
    kind = storage_type(kind)
    if not is_list(kind):
        return False
    inner = storage_type(kind.value_type)
    if role.name == "group" and is_number(inner):
        return column.casefold() in {name for rank in role.ranks[: GROUP_IDS + 1] for name in rank}
    return is_id(inner) and not types.is_struct(inner)


FOUND = "found by name"
"""Why a column plays a role that no option names."""


@dataclass(frozen=True)
class Choice:
    """The columns that play one role, why they do, and which others could have.

    Attributes:
        columns: their names; several only for group and reward.
        why: given by an option, by metadata, or found by name.
        others: further columns of the input that the role's names match.
        weights: what each column is multiplied by before they are added; empty where all are 1.
    """

    columns: tuple[str, ...]
    why: str
    others: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    @property
    def terms(self) -> list[str]:
        """The columns, each with its weight where it has one, as an option would name it."""
        weights = self.weights or [1.0] * len(self.columns)
        return [n if weight == 1.0 else f"{n}*{weight:g}" for n, weight in zip(self.columns, weights, strict=True)]


MIXED = {b"olmorl.kinds": b"several"}
"""Metadata of a column of texts made from values of several kinds."""


@dataclass(frozen=True)
class Column:
    """A column as a file stores it: a top-level name, and the path of fields inside it."""

    name: str
    top: str
    path: tuple[str, ...] = field(default=())


def resolve(name: str, schema: pa.Schema) -> Column | None:
    """The column called `name`: a top-level one of that name, else a path into structs or lists of them, else None."""
    if name in schema.names:
        return Column(name, name)
    for top in sorted((n for n in schema.names if name.startswith(n + ".")), key=len, reverse=True):
        kind: pa.DataType | None = schema.field(top).type
        path = tuple(name[len(top) + 1 :].split("."))
        for part in path:
            kind = None if kind is None else _field(kind, part)
        if kind is not None:
            return Column(name, top, path)
    return None


def _field(kind: pa.DataType, part: str) -> pa.DataType | None:
    """The type of a struct's field; of a list of structs, the list of their fields."""
    kind = storage_type(kind)
    if is_list(kind):
        inner = _field(kind.value_type, part)
        return None if inner is None else pa.large_list(inner)
    return kind.field(part).type if types.is_struct(kind) and kind.get_field_index(part) >= 0 else None


def type_of(column: Column, schema: pa.Schema) -> pa.DataType:
    """The type at the end of the column's path."""
    kind = schema.field(column.top).type
    for part in column.path:
        kind = _field(kind, part)
    return kind


def candidates(role: Role, names: Sequence[str]) -> list[str]:
    """Columns among `names` that the role's own names match, best first: exactly, then whatever their case."""
    exact = [name for name in role.names if name in names]
    folded = {name.casefold(): name for name in reversed(names)}
    return exact + [folded[name] for name in role.names if name in folded and folded[name] not in exact]


def missing_column(name: str, file: str, names: Sequence[str]) -> InputError:
    """The error for a column that is not there, with the nearest of those that are."""
    import difflib

    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return InputError(f"{file}: no column {name}. The columns are {', '.join(names) or 'none'}.{hint}")


def check_type(role: Role, column: Column, schema: pa.Schema, file: str) -> None:
    """Refuse a column that cannot play the role by its type, or has values of several kinds.

    Raises:
        InputError: it cannot.
    """
    kind, mend = type_of(column, schema), f"Name another with {role.option}"
    is_not = f"it has type {kind}, a {role.name} is {role.wanted}"
    if _is_mixed(column, schema):
        is_not, mend = "its values are of several kinds", f"Write one kind, or name another with {role.option}"
    elif role.accepts(kind):
        return
    elif types.is_struct(inner := storage_type(kind)) and (fields := [f.name for f in inner if role.fits(f.type)]):
        mend = f"Name one of its fields, as in {role.option} {column.name}.{fields[0]}"
    raise InputError(f"{file}: column {column.name} cannot be the {role.name}: {is_not}. {mend}")


def _is_mixed(column: Column, schema: pa.Schema) -> bool:
    """Whether the column's texts were values of several kinds."""
    return MIXED.items() <= (schema.field(column.top).metadata or {}).items()


def found_by_name(role: Role, schemas: Mapping[str, pa.Schema], optional: bool = False) -> Choice | None:
    """The column that plays `role` by its name over all files together, whatever their order; None without one.

    A column of nulls only gives way to one with values. Where the role is `optional`, a column of its last rank that has
    another type is something else of that name.

    Raises:
        InputError: columns of such a name are there, but none of a type that can play the role; or two that say equally
            well that they do, where values cannot tell which.
    """
    names = list(dict.fromkeys(name for schema in schemas.values() for name in schema.names))
    matching = candidates(role, names)
    fitting = [name for name in matching if _fits(role, name, schemas)]
    fitting.sort(key=lambda name: all(map(types.is_null, _types(name, schemas))))
    if fitting:
        chosen, *others = fitting
        rivals = role.rivals(chosen, others)
        if role.asks == "names" and rivals:
            raise either(role, next(iter(schemas)), [chosen, *rivals])
        return Choice((chosen,), FOUND, tuple(name for name in matching if name != chosen))
    for name in matching[:1]:
        if optional and role.rank(name) == len(role.ranks) - 1 > 0:
            return None
        for file, schema in schemas.items():
            if name in schema.names:
                check_type(role, Column(name, name), schema, file)
    return None


def _fits(role: Role, name: str, schemas: Mapping[str, pa.Schema]) -> bool:
    """Whether a column can play the role in every file that has it; one of several kinds is refused once it is chosen."""
    kinds = [(schema.field(name).type, schema) for schema in schemas.values() if name in schema.names]
    return all(role.fits(kind) or _is_mixed(Column(name, name), schema) for kind, schema in kinds)


def _types(name: str, schemas: Mapping[str, pa.Schema]) -> list[pa.DataType]:
    """The types of a column in the files that have it."""
    return [schema.field(name).type for schema in schemas.values() if name in schema.names]


def either(role: Role, file: str, columns: Sequence[str], why: str = "") -> InputError:
    """The error for columns of which each could play the role: the user chooses."""
    what = f"{role.name.removeprefix('logp_')} log-probs" if role.name.startswith("logp") else role.name
    listed = " or ".join(f"{role.option} {name}" for name in columns)
    return InputError(f"{file}: {' and '.join(columns)} could each be the {what}{why}. Add {listed}")
