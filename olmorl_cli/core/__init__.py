"""The arithmetic: arrays in, arrays out. NumPy only, no input or output, no state."""

from olmorl_cli.core.advantages import group_advantages, nonzero_signal_groups
from olmorl_cli.core.objective import olmorl_objective

__all__ = ["group_advantages", "nonzero_signal_groups", "olmorl_objective"]
