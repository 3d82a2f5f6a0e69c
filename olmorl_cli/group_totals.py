"""What the token pass gathers by group, where there are too many groups to be held in memory."""

from collections.abc import Sequence

import numpy as np

from olmorl_cli.core.figures import Figures
from olmorl_cli.core.sums import IntArray
from olmorl_cli.rollouts.ledger import Piles
from olmorl_cli.token_pass import FragmentFigures, Plan


class GroupTotals:
    """Totals of groups on disk, share by share: only once all fragments are scored is anything known of a group.

    Groups are numbered share by share.
    """

    def __init__(self, plan: Plan, batches_of_groups: Piles, shares: int, name: str) -> None:
        """Nothing yet.

        Args:
            plan: what is asked for.
            batches_of_groups: the batch of each group of each share.
            shares: their number.
            name: what messages call the input.

        Raises:
            InputError: there is no room for temporary files.
        """
        self._plan, self._batches, self._totals = plan, batches_of_groups, Piles(name)
        self._firsts = np.cumsum([0, *(self._batch_of_group(share).size for share in range(shares))])

    def _batch_of_group(self, share: int) -> IntArray:
        (batch_of_group,) = self._batches.take(share)
        return np.asarray(batch_of_group)

    def add(self, part: FragmentFigures) -> None:
        """Add what is gathered of the groups of a fragment.

        Raises:
            InputError: there is no room for it.
        """
        groups, of_groups = part.by_group()
        edges = np.searchsorted(groups, self._firsts)
        for share in np.flatnonzero(np.diff(edges)).tolist():
            own = slice(int(edges[share]), int(edges[share + 1]))
            self._totals.add(share, (groups[own] - self._firsts[share], [figures.of_groups(own) for figures in of_groups]))

    def close(self, whole: Sequence[Figures]) -> None:
        """All fragments are added: add what comes of it to the figures of the whole input, which are closed."""
        for share in range(self._firsts.size - 1):
            batch_of_group = self._batch_of_group(share)
            gathered = self._plan.figures(len(whole), whole[0].batches, batch_of_group.size)
            for groups, of_groups in self._totals.take(share):
                for figures, part in zip(gathered, of_groups, strict=True):
                    figures.merge(part, groups)
            for figures, own in zip(whole, gathered, strict=True):
                own.close(batch_of_group)
                figures.merge(own)
