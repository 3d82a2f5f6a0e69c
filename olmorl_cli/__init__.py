"""olmorl: scores reinforcement-learning rollouts offline, as OLMo 3's OlmoRL does."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from olmorl_cli.core import group_advantages, nonzero_signal_groups, olmorl_objective

__version__ = "0.1.0"
__all__ = ["__version__", "group_advantages", "nonzero_signal_groups", "olmorl_objective"]


def __getattr__(name: str) -> Any:
    # NumPy is loaded with the first function asked for, not with the package: `olmorl --help` stays quick.
    if name in __all__:
        from olmorl_cli import core

        return getattr(core, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
