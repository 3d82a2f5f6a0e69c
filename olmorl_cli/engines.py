"""Which engine works on the fragments, by name."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from olmorl_cli.errors import InputError, UsageError
from olmorl_cli.values import parse_choice

if TYPE_CHECKING:
    from olmorl_cli.rollouts.engine import Engine

ENVIRONMENT = "OLMORL_ENGINE"
ADDRESS = "RAY_ADDRESS"
EXTRA = "pip install 'olmorl-cli[ray]'"


def engine_of(parameters: Mapping[str, Any]) -> "Engine":
    """The engine that a command's parameters ask for; nothing is started yet.

    Raises:
        UsageError: there is none of that name, or the address is one of another.
        InputError: its package is not installed.
    """
    from olmorl_cli.rollouts.engine import Threads

    if "engine" not in parameters:  # commands that only this process can run
        return Threads()
    given, address = parameters["engine"], parameters["ray_address"]
    named = given if given is not None else os.environ.get(ENVIRONMENT) or "local"
    engine = parse_choice("--engine" if given is not None else f"${ENVIRONMENT}", named, ("local", "ray"))
    if address == "":
        raise UsageError("--ray-address takes the address of a cluster, got ''")
    if engine == "local":
        if address is not None:
            raise UsageError("--ray-address is for --engine ray: add that, or leave the address out")
        return Threads()
    if find_spec("ray") is None:
        raise InputError(f"--engine ray: the package ray is needed. Install it with {EXTRA}")
    from olmorl_cli.ray_engine import RayEngine

    return RayEngine(address or os.environ.get(ADDRESS) or None)
