"""Problems of several workers, merged."""

import itertools

from olmorl_cli.errors import Place, Problems


def found(row: int, action: str) -> Problems:
    problems = Problems()
    problems.add("lengths", "lists differ", action, file="f", places=[Place(0, row), Place(0, row + 1)], count=3)
    return problems


def test_the_order_of_merging_does_not_matter() -> None:
    """Counts are added, the first places kept, and what to do is said as for the first of them."""
    parts = [found(4, "Pad them"), found(1, "Cut them"), found(7, "Write them anew")]
    lines = set()
    for order in itertools.permutations(parts):
        whole = Problems()
        for part in order:
            whole.merge(part)
        lines.update(whole.lines())
    assert lines == {"f: lists differ, rows 1, 2, 4, 5, 7 (9 in all). Cut them"}
