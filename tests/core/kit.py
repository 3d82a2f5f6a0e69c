"""What several tests of the core share."""

import numpy as np

from olmorl_cli.core.figures import Figures, Part
from olmorl_cli.core.objective import Aggregation
from olmorl_cli.core.tokens import TokenSums


def objective(advantages, sums, tokens, counted, partition, recipe):
    """The recipe's objective of each batch from the per-answer sums."""
    figures = Figures(recipe, partition.batches, partition.batch_of_group.size)
    scores = np.where(counted, advantages, np.nan)
    batches = partition.answers if partition.batches > 1 else None
    part = Part(0, scores, np.ones(counted.size, dtype=bool), partition.groups, batches)
    figures.add(part, TokenSums(tokens, {recipe.terms: sums}))
    figures.close(partition.batch_of_group)
    return figures.objective("counted")


def aggregate(terms, tokens, counted, partition, how, divisor):
    """The aggregate of all answers at once, one number a batch."""
    whole = Aggregation(how, divisor, partition.batches, partition.batch_of_group.size)
    groups = partition.groups[counted]
    batches = None if partition.batches == 1 else partition.batch_of_group[groups]
    whole.add(terms[counted], tokens[counted], groups, batches)
    whole.close(partition.batch_of_group)
    return whole.values()
