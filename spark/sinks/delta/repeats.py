"""Records that a batch repeats: the same raw record, in the same revision, as one that the table or the batch has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from spark.sinks.delta.lake_table import TableWriter
from spark.sinks.delta.table_files import IDENTITY

_RECORD = ["raw", "raw_offset", "part", "revision"]


def identities(streams: Sequence[bytes]) -> pd.DataFrame:
    """Columns of `spark.sinks.delta.table_files.IDENTITY`, of all tasks, in the order of the topic's partitions and offsets."""
    tables = [pa.ipc.open_stream(stream).read_all() for stream in streams]
    found = pa.concat_tables([IDENTITY.empty_table(), *tables])
    found = found.set_column(0, "raw", found.column("raw").dictionary_encode())
    frame: pd.DataFrame = found.to_pandas()
    return frame.sort_values(["record_partition", "record_offset"], ignore_index=True)


def repeats(found: pd.DataFrame, table: TableWriter) -> dict[int, npt.NDArray[np.int64]]:
    """The offsets, by partition of the topic, of records that may not be appended; the first of its kind may.

    A raw record that lies above all that the table has of its partition can't be there, so only the others are compared with
    the table: where nothing is repeated those are few, since partitions of the topic are read in no common order.
    """
    repeated = found.duplicated(_RECORD).to_numpy()
    highest = found["raw"].map({raw: table.highest(raw) for raw in found["raw"].cat.categories}).astype("int64")
    is_below, is_repair = found["raw_offset"] < highest, found["revision"] > 0
    # Apart, for repairs go far back: looking for one among all rows since would be reading most of the table.
    for repairs, below in ((False, found[is_below & ~is_repair]), (True, found[is_below & is_repair])):
        if below.empty:
            continue
        coordinates = below["raw"].astype(str) + "/" + below["raw_offset"].astype(str)
        coordinates += ("/" + below["part"].astype(str)).where(below["part"] >= 0, "")
        wanted = list(zip(coordinates, below["revision"], strict=True))
        # One range for each: a partition that was added begins at 0, beside others at millions.
        by_raw = below.groupby("raw", observed=True)["raw_offset"]
        ranges = [(int(offsets.min()), int(offsets.max())) for _, offsets in by_raw]
        # Of the rows that lie between, of which there may be millions, none is kept.
        there = set(wanted).intersection(table.revisions(ranges, repairs=repairs))
        in_table = [each in there for each in wanted]
        repeated[below.index[in_table]] = True
    rows = found[repeated]
    return {
        int(str(partition)): part["record_offset"].to_numpy()
        for partition, part in rows.groupby("record_partition", sort=True)
    }


def highest_offsets(found: pd.DataFrame, table: TableWriter) -> dict[str, int]:
    """For each raw partition of these records, the offset after the highest that the table has with them."""
    return {
        str(raw): max(int(offset) + 1, table.highest(str(raw)))
        for raw, offset in found.groupby("raw", observed=True)["raw_offset"].max().items()
    }
