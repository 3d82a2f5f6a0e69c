"""What a command was asked for, read from its options."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from olmorl_cli.output import Destination, destination_of
from olmorl_cli.values import parse_choice, selection_of

if TYPE_CHECKING:
    from olmorl_cli.rollouts.engine import Engine
    from olmorl_cli.rollouts.rollouts import Rollouts, Selection


@dataclass(frozen=True)
class Request:
    """Which rollouts, how they are read, and where the result goes.

    Attributes:
        files: the command's FILES.
        selection: what is said of the input.
        destination: where the result goes.
        skip: what cannot be scored is left out.
        engine: who reads and scores.
    """

    files: Sequence[str]
    selection: "Selection"
    destination: Destination
    skip: bool
    engine: "Engine"

    @classmethod
    def of(cls, parameters: Mapping[str, Any], destination: Destination | None = None) -> "Request":
        """What a command's parameters ask for; the destination's `check` is still to be called.

        Raises:
            UsageError: they cannot be meant.
            InputError: a package that they need is not installed.
        """
        from olmorl_cli.engines import engine_of

        selection = selection_of(parameters)
        destination = destination or destination_of(parameters)
        skip = parse_choice("--invalid", parameters.get("invalid", "error"), ("error", "skip")) == "skip"
        return cls(parameters["files"] or (), selection, destination, skip, engine_of(parameters))

    def opened(self, needs: frozenset[str], optional: frozenset[str] | None = None) -> "Rollouts":
        """The input, with columns for the roles in `needs`, once it is known that the result can go to its destination.

        Raises:
            InputError, UsageError, DataError: as `open_rollouts`, and `Destination.check`.
        """
        from olmorl_cli.rollouts.opening import OPTIONAL, open_rollouts

        optional = OPTIONAL if optional is None else optional
        return open_rollouts(self.files, self.selection, needs, optional, self.destination.check, self.engine)
