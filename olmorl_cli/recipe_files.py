"""Recipes from what stands on the command line: a name, or a TOML file, and options that win over it."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from olmorl_cli.core.named import NAMED
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import InputError, UsageError


def recipe_of(name: str, options: Mapping[str, Any]) -> Recipe:
    """The recipe called `name`, or in the TOML file of that name, with `options` (field → value) over it.

    Raises:
        UsageError: there is no such recipe, or an option and the recipe do not go together.
        InputError: the file cannot be read or says something that is not allowed.
    """
    recipe = NAMED[name]() if name in NAMED else _from_file(name)
    try:
        return dataclasses.replace(recipe, **options)
    except ValueError as error:
        raise UsageError(f"recipe {recipe.name} with the options given: {error}") from error


def _from_file(path: str) -> Recipe:
    if not os.path.exists(path):
        if path.endswith(".toml"):
            raise InputError(f"{path}: no such recipe file. Check the path")
        raise UsageError(f"no such recipe: {path}. The names are {', '.join(NAMED)}; a file is called NAME.toml")
    import tomllib

    try:
        with open(path, "rb") as file:
            settings = tomllib.load(file)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}. Check the path and its permissions") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML: {error}. Mend the line") from error
    try:
        return Recipe.from_mapping(settings, name=os.path.splitext(os.path.basename(path))[0])
    except ValueError as error:
        raise InputError(f"{path}: {error}. Mend the recipe file") from error
