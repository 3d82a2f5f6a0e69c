"""What the token pass gathers by group, where there are too many groups to be held in memory."""

from collections.abc import Sequence

from olmorl_cli.core.figures import Figures
from olmorl_cli.core.sums import IntArray
from olmorl_cli.core.totals import Totals
from olmorl_cli.rollouts.ids import first_rows
from olmorl_cli.rollouts.ledger import ROWS, Ledger
from olmorl_cli.token_pass import FragmentFigures, Plan


class GroupTotals:
    """Totals of groups on disk, share by share: only once all fragments are scored is anything known of a group."""

    def __init__(self, plan: Plan, answers: Ledger, first_groups: Sequence[int], name: str) -> None:
        """Nothing yet.

        Args:
            plan: what is asked for.
            answers: a piece for each share, with the group and the batch of each answer.
            first_groups: the group with which each share begins: they are numbered share by share.
            name: what messages call the input.

        Raises:
            InputError: there is no room for temporary files.
        """
        self._plan, self._answers, self._firsts = plan, answers, first_groups
        self._totals = Ledger(first_groups, name)

    def add(self, part: FragmentFigures) -> None:
        """Add what is gathered of the groups of a fragment.

        Raises:
            InputError: there is no room for it.
        """
        groups, of_recipes = part.by_group()
        columns = {
            (number, key, *place): values
            for number, figures in enumerate(of_recipes)
            for key, totals in figures.group_totals().items()
            for place, values in totals.columns().items()
        }
        self._totals.add(groups, columns)

    def close(self, whole: Sequence[Figures]) -> None:
        """All fragments are added: add what comes of it to the figures of the whole input, which are closed."""
        for share, first in enumerate(self._firsts):
            batch_of_group = self._batch_of_group(share)
            gathered = self._plan.figures(len(whole), whole[0].batches, batch_of_group.size)
            for piece in self._totals.pieces(share):
                groups = piece.pop(ROWS) - first
                for number, figures in enumerate(gathered):
                    for key, totals in figures.group_totals().items():
                        own = {(sort, *at): values for (n, k, sort, *at), values in piece.items() if (n, k) == (number, key)}
                        totals.merge(Totals.of_columns(groups.size, own), groups)
            for figures, of_share in zip(whole, gathered, strict=True):
                of_share.close(batch_of_group)
                figures.merge(of_share)

    def _batch_of_group(self, share: int) -> IntArray:
        """The batch of each of its groups, int (P,)."""
        piece = self._answers.piece(share)
        groups = piece["group"] - self._firsts[share]
        batches: IntArray = piece["batch"][first_rows(groups, int(groups.max(initial=-1)) + 1)]
        return batches
