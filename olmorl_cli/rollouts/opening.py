"""Opening the input: every file, and the choice of the columns."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from pyarrow import types

from olmorl_cli.errors import DataError, InputError, Problems, UsageError
from olmorl_cli.rollouts.doubts import refuse_other_rewards, settled_group
from olmorl_cli.rollouts.engine import Engine
from olmorl_cli.rollouts.exploded import ROW, ExplodedFile
from olmorl_cli.rollouts.files import DataFile, open_file
from olmorl_cli.rollouts.joined import JoinedFile, Pairing
from olmorl_cli.rollouts.masks import files_of_labels
from olmorl_cli.rollouts.parallel import REMOTE_AT_ONCE, in_order
from olmorl_cli.rollouts.partitioned import with_partitions
from olmorl_cli.rollouts.provenance import Provenance, provenance_of
from olmorl_cli.rollouts.roles import (
    FOUND,
    ROLES,
    Choice,
    Column,
    Role,
    candidates,
    check_type,
    found_by_name,
    is_list,
    is_listed,
    is_number_list,
    is_text,
    missing_column,
    resolve,
    storage_type,
    type_of,
)
from olmorl_cli.rollouts.rollouts import Rollouts, Selection
from olmorl_cli.rollouts.sources import Source, allow_open_files, find_sources

OPTIONAL = frozenset({"step", "mask", "logp_sampler", "answer"})
"""Roles that an input need not have."""
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,2})?")
DEEPEST = 16
"""Structs inside each other in which a path to a role's column is looked for."""
MAY_LACK = frozenset({"logp_sampler"})
"""Roles whose column single files may lack: there it is null."""

ANSWER_TEXTS = ("completion", "response", "output", "output_response", "decoded_completion")
"""Columns with the text of one answer."""


def open_rollouts(
    arguments: Sequence[str],
    selection: Selection,
    needs: frozenset[str],
    optional: frozenset[str] = OPTIONAL,
    check: Callable[[Sequence[Source]], None] | None = None,
    engine: Engine | None = None,
) -> Rollouts:
    """Open the input and find the columns of the roles in `needs`.

    Args:
        arguments: the command's FILES.
        selection: what options say.
        needs: roles to find. "advantage" among them means that a file's own
            advantages are used where `olmorl` wrote them; "reward" is then not needed.
        optional: those that may be absent.
        check: is shown the files before any is opened, and may refuse them.
        engine: maps work over the fragments; threads of this process by default, and where files cannot be opened elsewhere.

    Raises:
        InputError, UsageError, DataError: the input cannot be opened, or lacks a column.
    """
    if selection.join == "-" and (not arguments or "-" in arguments):
        raise UsageError("standard input can be read once: beside --join -, name the FILES")
    sources = find_sources(arguments)
    joined = [] if selection.join is None else find_sources([selection.join])
    if check is not None:
        check([*sources, *joined])
    files: Sequence[DataFile] = _opened(sources)
    pairing = None
    if selection.join is not None:
        pairing = Pairing(files, _opened(joined), selection.on, selection.join)
        files = pairing.files
    provenance = provenance_of([file.schema for file in files]) if "advantage" in needs else None
    if provenance is not None and not _applies(provenance, selection, files[0].schema):
        provenance = None
    choices, group_size = _choose(files, selection, needs, optional, provenance, pairing)
    refuse_other_rewards(choices, files)
    if pairing is not None:
        pairing.refuse_lacking([name for role, choice in choices.items() if role not in MAY_LACK for name in choice.columns])
        pairing = pairing.opened(choices)
        files = pairing.files
    files = [_one_row_an_answer(file, choices) for file in files]
    if "answer" in choices and any(_repeats_answer(file, choices["answer"]) for file in files):
        del choices["answer"]  # an id of the prompt
    fragments = [fragment for number, file in enumerate(files) for fragment in file.fragments(number)]
    choices = settled_group(choices, files, fragments)
    rollouts = Rollouts(files, fragments, choices, group_size, provenance, selection.compact)
    if pairing is not None:
        rollouts = dataclasses.replace(rollouts, joined=pairing.others, notes=pairing.notes(choices))
    _check_every_file(rollouts)
    rollouts = dataclasses.replace(rollouts, files_of_labels=files_of_labels(files, fragments, choices))
    return rollouts if engine is None else rollouts.worked_by(engine)


def _opened(sources: Sequence[Source]) -> list[DataFile]:
    """The files, with their folders' columns; many URIs at a time, since each takes a few answers of the network.

    Raises:
        InputError, DataError: they cannot be opened.
    """
    allow_open_files(len(sources))  # each copy that is read in place of a JSON Lines file stays open
    many = REMOTE_AT_ONCE if any(source.remote for source in sources) else 1
    files = with_partitions(list(in_order(open_file, sources, many) if many > 1 else map(open_file, sources)))
    _refuse_repeated_names(files)
    return files


def _repeats_answer(file: DataFile, answer: Choice) -> bool:
    """Whether the answer's id is one of the prompt, in a file of prompts."""
    own = file.unwidened if isinstance(file, JoinedFile) else file
    return isinstance(own, ExplodedFile) and resolve(answer.columns[0], own.schema) is not None and not own.opens(answer)


def _refuse_repeated_names(files: Sequence[DataFile]) -> None:
    problems = Problems()
    for file in files:
        names = file.schema.names
        for name in sorted({name for name in names if names.count(name) > 1}):
            problems.add(
                "duplicate_column",
                f"{names.count(name)} columns are called {name}",
                "Rename or drop all but one",
                file=file.name,
                places=[],
                count=1,
                column=name,
            )
    if problems:
        raise DataError(problems)


def _applies(provenance: Provenance, selection: Selection, schema: pa.Schema) -> bool:
    """Whether the file's own advantages stand: nothing that they rest on is asked for otherwise."""
    overruled = selection.group_size is not None or any(map(selection.of, ("reward", "group", "step", "advantage")))
    named = [_weighted(ROLES["reward"], names, {"": schema}) for names in provenance.columns.values()]
    return not overruled and all(resolve(name, schema) for choice in named for name in choice.columns)


def _choose(
    files: Sequence[DataFile],
    selection: Selection,
    needs: frozenset[str],
    optional: frozenset[str],
    provenance: Provenance | None,
    pairing: Pairing | None = None,
) -> tuple[dict[str, Choice], int | None]:
    schemas = {file.name: file.schema for file in files}
    group_size = selection.group_size
    choices: dict[str, Choice] = {}
    written = dict(provenance.columns) if provenance else {}
    if written and provenance:
        group_size = provenance.group_size
    for name, role in ROLES.items():
        if name not in needs or (name == "group" and group_size is not None):
            continue
        if name == "answer" and selection.of(name) == ("none",) and not any("none" in s.names for s in schemas.values()):
            continue
        if name == "by" and selection.of(name) == ("step",) and "step" in choices:
            choices[name] = Choice(choices["step"].columns, "the step")
        elif given := selection.of(name):
            choices[name] = _weighted(role, given, schemas) if name == "reward" else Choice(given, f"given by {role.option}")
        elif name in written:
            choices[name] = dataclasses.replace(_weighted(role, written[name], schemas), why="written by olmorl advantages")
        elif not (name in ("step", "group") and written) and (found := _found(role, schemas, pairing, name in optional)):
            choices[name] = found
    if "reward" in needs and "reward" not in choices and (found := _reward_functions(schemas)):
        choices["reward"] = found
    if "group" in needs and "group" not in choices and group_size is None and _all_listed(schemas, choices):
        choices["group"] = Choice((ROW,), "one row a prompt")
    _refuse_lacking(choices, needs - optional, group_size, schemas)
    if "mask" in choices and choices["mask"].why == FOUND and _without_values(choices["mask"], schemas):
        del choices["mask"]
    return choices, group_size


def _found(role: Role, schemas: Mapping[str, pa.Schema], pairing: Pairing | None, optional: bool) -> Choice | None:
    """The column that plays the role by its name; a joined one that the input's own hides only where that will not do.

    Raises:
        InputError: columns of such a name are there, but none of a type that can play the role.
    """
    if pairing is not None and pairing.hidden:
        useful = {
            file: pa.schema([f for f in schema if not (f.name in pairing.hidden and types.is_null(f.type))])
            for file, schema in schemas.items()
        }
        with suppress(InputError):
            if found := found_by_name(role, useful, optional):
                return found
        with suppress(InputError):
            if found := found_by_name(role, {pairing.name: pairing.hidden_schema}, optional):
                return Choice((pairing.hidden[found.columns[0]],), pairing.only)
    return found_by_name(role, schemas, optional)


def _without_values(choice: Choice, schemas: Mapping[str, pa.Schema]) -> bool:
    """Whether the column is of type null wherever it is: its writer had nothing to put into it."""
    return all(
        types.is_null(schema.field(n).type) for schema in schemas.values() for n in choice.columns if n in schema.names
    )


def _weighted(role: Role, given: Sequence[str], schemas: Mapping[str, pa.Schema]) -> Choice:
    """Reward columns with their weights: `b*0.5` is half of b, unless a column is called so."""
    names, weights = [], []
    for each in given:
        name, star, factor = each.rpartition("*")
        literal = any(resolve(each, schema) for schema in schemas.values())
        if literal or not star or not NUMBER.fullmatch(factor.strip()):
            name, factor = each, "1"
        names.append(name.strip() if name != each else name)
        weights.append(float(factor))
    return Choice(tuple(names), f"given by {role.option}", (), tuple(weights) if set(weights) != {1.0} else ())


def _refuse_lacking(
    choices: Mapping[str, Choice], needs: frozenset[str], group_size: int | None, schemas: Mapping[str, pa.Schema]
) -> None:
    """Refuse an input without a column for a role that must be there.

    Raises:
        InputError: there is none; the message names the columns that are there, and the option.
    """
    if "reward" in needs and "reward" not in choices and "advantage" not in choices:
        raise _lacking(["reward"], schemas)
    if "group" in needs and "group" not in choices and group_size is None:
        raise _lacking(["group"], schemas, more=" or take N consecutive rows a group with -G N")
    lacking = [name for name in ROLES if name in needs - {"reward", "advantage", "group"} and name not in choices]
    tokens = [name for name in lacking if name.startswith("logp")]
    if tokens:
        sampler = choices.get("logp_sampler")
        taken = f" ({sampler.columns[0]} counts as the sampler's)" if sampler and sampler.why == FOUND else ""
        raise _lacking(tokens, schemas, taken=taken)
    if lacking:
        raise _lacking(lacking[:1], schemas)


def _all_listed(schemas: Mapping[str, pa.Schema], choices: Mapping[str, Choice]) -> bool:
    """Whether every file has one row a prompt."""
    if "reward" not in choices and "advantage" not in choices:
        return False
    return all(_scores_listed(schema, choices) is not None for schema in schemas.values())


def _reward_functions(schemas: Mapping[str, pa.Schema]) -> Choice | None:
    """TRL's and ms-swift's rewards: a column for each reward function, called after it, between completion and advantage.

    Raises:
        InputError: there are several, whose weights the file does not tell.
    """
    names = list(dict.fromkeys(name for schema in schemas.values() for name in schema.names))
    ends = [names.index(name) for name in ("advantage", "advantages") if name in names]
    if "completion" not in names or not ends:
        return None
    between = names[names.index("completion") + 1 : ends[0]]
    kinds = {name: schema.field(name).type for schema in schemas.values() for name in names if name in schema.names}
    if is_list(kinds["completion"]) and is_text(kinds["completion"].value_type):  # a step a row
        kinds = {name: kind.value_type for name, kind in kinds.items() if is_list(kind)}
    found = [name for name in between if name in kinds and types.is_floating(kinds[name])]
    if len(found) > 1:
        options = " ".join(f"--reward {name}" for name in found)
        raise InputError(
            f"{next(iter(schemas))}: several columns look like reward functions: {', '.join(found)}. Name those that count"
            f" (their sum is the reward), as in {options}"
        )
    return Choice((found[0],), "the only number between completion and advantage") if found else None


def _scores_listed(schema: pa.Schema, choices: Mapping[str, Choice]) -> Column | None:
    """The reward's (or advantage's) column, where it holds a list of values a row."""
    role = "reward" if "reward" in choices else "advantage"
    column = resolve(choices[role].columns[0], schema)
    if column is None or not is_listed(ROLES[role].accepts, type_of(column, schema)):
        return None
    return column


def _one_row_an_answer(file: DataFile, choices: Mapping[str, Choice]) -> DataFile:
    """The file, with its rows opened where one holds the answers of a prompt.

    Raises:
        InputError: the rewards are lists but the tokens are not: a reward for each token, not for each answer.
    """
    rewards = _scores_listed(file.schema, choices)
    if rewards is None:
        return file
    _refuse_rewards_of_tokens(file, rewards)
    listed = {}
    for role, choice in choices.items():
        for name in (*choice.columns, *(choice.others if role == "group" else ())):
            column = resolve(name, file.schema)
            if column is not None and ROLES[role].lists_answers(name, type_of(column, file.schema)):
                listed[name] = column
    for each in ROLES.values():  # what is passed through is to be scored further
        for name in candidates(each, file.schema.names) if each.opens else ():
            if name not in listed and each.lists_answers(name, file.schema.field(name).type):
                listed[name] = Column(name, name)
    return ExplodedFile(file, rewards, list(listed.values()))


def _refuse_rewards_of_tokens(file: DataFile, rewards: Column) -> None:
    """Refuse lists of rewards in a row that holds the tokens, or the text, of a single answer."""
    lists = [field.name for field in file.schema if is_number_list(field.type) and not types.is_null(field.type)]
    tokens = [name for role in ROLES if role.startswith("logp") for name in candidates(ROLES[role], lists)]
    texts = [name for name in ANSWER_TEXTS if name in file.schema.names and is_text(file.schema.field(name).type)]
    if isinstance(file, JoinedFile):
        for name in (name for name in tokens if file.adds(rewards.top) != file.adds(name)):
            raise InputError(
                f"{file.name}: {rewards.name} holds the values of a prompt's answers in a row, {name} one answer's, and one"
                " of them is joined. Join on a column that lists each answer's key beside the prompt, or write one row an"
                " answer"
            )
    if tokens or texts:
        one = f"{tokens[0]} one list" if tokens else f"{texts[0]} one text"
        raise InputError(
            f"{file.name}: {rewards.name} holds a list of numbers a row and {one}: is it a reward for each token? Write one"
            " reward an answer, or name another column with --reward"
        )


def _lacking(names: Sequence[str], schemas: Mapping[str, pa.Schema], *, taken: str = "", more: str = "") -> InputError:
    """The error for roles of one sort that no column plays."""
    file, schema = next(iter(schemas.items()))
    roles = [ROLES[name] for name in names]
    what = " and ".join(role.name.removeprefix("logp_") for role in roles)
    what += " log-probs" if names[0].startswith("logp") else ""
    inside = [f"{role.option} {name}" for role in roles for name in _fields_inside(role, schema)[:1]]
    perhaps = f", perhaps {' '.join(inside)}" if inside else ""
    options = " ".join(f"{role.option} COL" for role in roles)
    them = "them" if len(roles) > 1 else "it"
    return InputError(
        f"{file}: no column for the {what}, {roles[0].wanted}{taken}. Name {them} with {options}{more}{perhaps}; the columns"
        f" are {', '.join(schema.names) or 'none'}"
    )


def _fields_inside(role: Role, schema: pa.Schema) -> list[str]:
    """Dotted paths into structs, and lists of them, whose ends could play the role by name and type; best first."""
    found: list[tuple[int, str]] = []

    def look(path: str, kind: pa.DataType, depth: int = 0) -> None:
        inner = storage_type(kind)
        while is_list(inner):
            inner = storage_type(inner.value_type)
        for each in inner if types.is_struct(inner) and depth < DEEPEST else ():
            name = f"{path}.{each.name}"
            column = resolve(name, schema)
            if each.name in role.names and column is not None and role.fits(type_of(column, schema)):
                found.append((role.names.index(each.name), name))
            look(name, each.type, depth + 1)

    for top in schema:
        look(top.name, top.type)
    return [name for _, name in sorted(found)]


def _check_every_file(rollouts: Rollouts) -> None:
    """Refuse a file that lacks a chosen column, or has it with a type that will not do."""
    for name, choice in rollouts.choices.items():
        for column in choice.columns:
            for file in rollouts.files:
                place = resolve(column, file.schema)
                if place is None and name in MAY_LACK and len(rollouts.files) > 1:
                    continue
                if place is None:
                    raise missing_column(column, file.name, file.schema.names)
                check_type(ROLES[name], place, file.schema, file.name)
