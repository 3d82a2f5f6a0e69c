"""Files whose folders are columns: `step=12/part-0.parquet` has a step, though the file does not say so."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from olmorl_cli.rollouts.files import DataFile, Fragment

_NOTHING = "__HIVE_DEFAULT_PARTITION__"


class PartitionedFile(DataFile):
    """A file with a column for each `key=value` folder above it, but for those that it has itself."""

    def __init__(self, file: DataFile, values: dict[str, pa.Scalar]) -> None:
        """Add to `file` the columns of `values`, one value each."""
        self._file, self._values = file, values
        self.kind = file.kind
        fields = [*file.schema, *(pa.field(key, value.type) for key, value in values.items())]
        super().__init__(file.source, pa.schema(fields, metadata=file.schema.metadata))

    @property
    def portable(self) -> bool:
        return self._file.portable

    def fragments(self, number: int) -> list[Fragment]:
        return self._file.fragments(number)

    def batches(self, fragment: Fragment, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        own = [name for name in columns if name not in self._values]
        if not own:
            added = {name: self._values[name] for name in columns}
            yield pa.RecordBatch.from_pydict({k: pa.repeat(value, fragment.rows) for k, value in added.items()})
            return
        for batch in self._file.batches(fragment, own):
            arrays = {name: batch.column(name) for name in own}
            arrays |= {n: pa.repeat(self._values[n], batch.num_rows) for n in columns if n in self._values}
            yield pa.RecordBatch.from_pydict({name: arrays[name] for name in columns})


def with_partitions(files: Sequence[DataFile]) -> list[DataFile]:
    """The files with their folders' columns: whole numbers where all files have such, else text."""
    keys = dict.fromkeys(key for file in files for key in file.source.partition)
    kinds = {key: _kind([f.source.partition[key] for f in files if key in f.source.partition]) for key in keys}
    partitioned = []
    for file in files:
        own = {key: text for key, text in file.source.partition.items() if key not in file.schema.names}
        values = {key: pa.scalar(_value(text, kinds[key]), kinds[key]) for key, text in own.items()}
        partitioned.append(PartitionedFile(file, values) if values else file)
    return partitioned


def _kind(texts: Sequence[str]) -> pa.DataType:
    whole = all(
        text == _NOTHING or (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()) for text in texts
    )
    return pa.int64() if whole and all(len(text) < 19 or text == _NOTHING for text in texts) else pa.string()


def _value(text: str, kind: pa.DataType) -> int | str | None:
    if text == _NOTHING:
        return None
    return int(text) if pa.types.is_integer(kind) else text
