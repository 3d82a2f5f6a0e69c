"""Arrow arrays of every layout become the same plain arrays."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olmorl_cli.rollouts.arrays import column_of, lists_of, marks_of, numbers_of, storage_of
from olmorl_cli.rollouts.roles import Column
from tests.rollouts.builders import arrow

LISTS = [[-1.0, -2.0], [-3.0], None, [], [-4.0, -5.0, -6.0], None]
VARIABLE = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]


def plain(array: pa.Array) -> list[list[float] | None]:
    """What `lists_of` says, as Python lists."""
    lists = lists_of(array)
    values = iter(lists.values.to_pylist())
    found = [[next(values) for _ in range(length)] for length in lists.lengths.tolist()]
    assert next(values, "end") == "end"
    return [None if null else each for null, each in zip(lists.is_null.tolist(), found, strict=True)]


@pytest.mark.parametrize("kind", VARIABLE)
@pytest.mark.parametrize("without_null", [False, True])
def test_every_slice_of_every_layout_has_its_own_rows(kind, without_null: bool) -> None:
    lists = [each or [] for each in LISTS] if without_null else LISTS
    array = pa.array(lists, kind(pa.float32()))
    for first in range(len(lists) + 1):
        for rows in range(len(lists) - first + 1):
            assert plain(array.slice(first, rows)) == lists[first : first + rows]


def test_fixed_size_lists() -> None:
    lists = [[-1.0, -2.0], None, [-3.0, None], [-4.0, -5.0]]
    array = pa.array(lists, pa.list_(pa.float64(), 2))
    for first in range(5):
        assert plain(array.slice(first)) == lists[first:]


@pytest.mark.parametrize(("kind", "width"), [(pa.ListArray, pa.int32()), (pa.LargeListArray, pa.int64())])
def test_what_a_null_list_hides_never_appears(kind, width: pa.DataType) -> None:
    """Offsets 0, 2, 4, 5 with the middle list null over two nines."""
    array = kind.from_arrays(pa.array([0, 2, 4, 5], width), pa.array([-1.0, -2.0, 9.0, 9.0, -3.0]))
    valid = pa.array([True, False, True]).buffers()[1]
    hiding = pa.Array.from_buffers(array.type, 3, [valid, array.buffers()[1]], children=[array.values])
    assert plain(hiding) == [[-1.0, -2.0], None, [-3.0]]
    assert plain(hiding.slice(1)) == [None, [-3.0]]


def test_what_a_null_list_of_fixed_size_hides_never_appears() -> None:
    array = pa.FixedSizeListArray.from_arrays(pa.array([-1.0, -2.0, 9.0, 9.0]), 2, mask=pa.array([False, True]))
    assert plain(array) == [[-1.0, -2.0], None]


@pytest.mark.parametrize(("kind", "width"), [(pa.ListViewArray, pa.int32()), (pa.LargeListViewArray, pa.int64())])
def test_views_lie_in_any_order_overlap_and_leave_gaps(kind, width: pa.DataType) -> None:
    values = pa.array([-1.0, -2.0, -3.0, -4.0, -5.0])
    array = kind.from_arrays(pa.array([3, 0, 1, 0], width), pa.array([2, 2, 2, 0], width), values)
    assert plain(array) == [[-4.0, -5.0], [-1.0, -2.0], [-2.0, -3.0], []]
    assert plain(array.slice(1, 2)) == [[-1.0, -2.0], [-2.0, -3.0]]


def test_dictionaries_of_lists_and_columns_of_nulls() -> None:
    words = pa.array([[-1.0], [-2.0, -3.0]], pa.list_(pa.float32()))
    assert plain(pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), words)) == [
        [-2.0, -3.0],
        [-1.0],
        [-2.0, -3.0],
    ]
    assert plain(pa.nulls(3)) == [None, None, None]
    assert plain(pa.array([[], None], pa.list_(pa.null()))) == [[], None]


def test_extension_types_are_read_as_what_they_store() -> None:
    tensor = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [2]), pa.array([[-1.0, -2.0], [-3.0, -4.0]], pa.list_(pa.float32(), 2))
    )
    assert plain(tensor) == [[-1.0, -2.0], [-3.0, -4.0]]
    marks = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 2], pa.int8()))
    assert storage_of(marks).type == pa.int8()
    assert marks_of(marks)[0].tolist() == [True, False, True]
    assert numbers_of(marks)[0].tolist() == [1.0, 0.0, 2.0]


@settings(max_examples=50, deadline=None)
@given(
    lists=st.lists(st.none() | st.lists(st.none() | st.integers(-9, 0).map(float), max_size=4), max_size=8),
    kind=st.sampled_from(VARIABLE),
    first=st.integers(0, 8),
)
def test_lists_of_any_shape(lists, kind, first: int) -> None:
    assert plain(pa.array(lists, kind(pa.float64())).slice(first)) == lists[first:]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, 0, 1], pa.int8()),
        pa.array([1, 0, 1], pa.uint64()),
        arrow([1, 0, 1], pa.float16()),
        pa.array([1, 0, 1], pa.float32()),
        pa.array([True, False, True]),
        pa.array([Decimal("1.0"), Decimal("0.0"), Decimal("1.0")], pa.decimal128(3, 1)),
        pa.array([Decimal("1.0"), Decimal("0.0"), Decimal("1.0")], pa.decimal256(40, 1)),
        pa.array([1.0, 0.0, 1.0]).dictionary_encode(),
        pa.array([9, 1, 0, 1, 9]).slice(1, 3),
        pa.array([False, True, False, True]).slice(1),
    ],
    ids=lambda array: str(array.type),
)
def test_numbers_of_every_type(array: pa.Array) -> None:
    values, null = numbers_of(array)
    assert values.dtype.kind == "f"
    assert values.tolist() == [1.0, 0.0, 1.0]
    assert null is None


@pytest.mark.parametrize(
    "array",
    [
        pa.array([0.5, None, 0.0]),
        arrow([0.5, None, 0.0], pa.float16()),
        pa.array([Decimal("0.5"), None, Decimal("0.0")]),
        pa.array([0.5, None, 0.0]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array([0.5, None, 0.0])),
        pa.array([None, 0.5, None, 0.0]).slice(1),
    ],
    ids=lambda array: str(array.type),
)
def test_null_is_told_from_numbers_and_from_nan(array: pa.Array) -> None:
    values, null = numbers_of(array)
    assert null.tolist() == [False, True, False]
    assert values[[0, 2]].tolist() == [0.5, 0.0]
    assert np.isnan(values[1])


def test_nan_is_no_null() -> None:
    values, null = numbers_of(pa.array([float("nan"), None, 1.0]))
    assert null.tolist() == [False, True, False]
    assert np.isnan(values[:2]).all()


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint8(), pa.bool_()])
def test_whole_numbers_and_bools_with_nulls(kind: pa.DataType) -> None:
    values, null = numbers_of(pa.array([1, None, 0], pa.int8()).cast(kind))
    assert null.tolist() == [False, True, False]
    assert values[[0, 2]].tolist() == [1.0, 0.0]


def test_a_column_of_nulls_is_no_numbers() -> None:
    values, null = numbers_of(pa.nulls(2))
    assert np.isnan(values).all()
    assert null.all()


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64()])
def test_marks(kind: pa.DataType) -> None:
    values = [True, True, False, True] if kind == pa.bool_() else [9, 1, 0, 1]
    marks, unknown = marks_of(arrow(values, kind).slice(1))
    assert (marks.tolist(), unknown) == ([True, False, True], None)
    assert marks_of(arrow(values[:2], kind)) == (None, None)


@pytest.mark.parametrize(
    "array", [pa.array([1, None, 0], pa.int8()), pa.array([True, None, False]), pa.array([1.0, None, 0.0])]
)
def test_marks_that_say_nothing(array: pa.Array) -> None:
    assert marks_of(array)[1].tolist() == [False, True, False]


def test_nan_marks_nothing() -> None:
    marks, unknown = marks_of(pa.array([1.0, float("nan"), 0.0]))
    assert (marks.tolist(), unknown.tolist()) == ([True, False, False], [False, True, False])


def test_a_null_struct_hides_its_fields() -> None:
    inner = pa.StructArray.from_arrays([pa.array([1.0, 2.0, 3.0])], ["reward"], mask=pa.array([False, True, False]))
    batch = pa.record_batch({"meta": pa.StructArray.from_arrays([inner], ["judge"])})
    assert column_of(batch, Column("meta.judge.reward", "meta", ("judge", "reward"))).to_pylist() == [1.0, None, 3.0]
    sliced = batch.slice(1)
    assert column_of(sliced, Column("meta.judge.reward", "meta", ("judge", "reward"))).to_pylist() == [None, 3.0]
