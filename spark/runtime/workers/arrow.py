"""Arrow values for Python workers, made from buffers.

`pa.array`, `pa.scalar` and whatever takes Python values for them import pandas where it is installed: a second of CPU and
45 MiB for each worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def text(value: str | bytes, kind: pa.DataType | None = None) -> pa.Array:
    """An array of one value: a string, or of the binary type `kind`."""
    body = value.encode() if isinstance(value, str) else value
    ends = np.array([0, len(body)], np.int32)
    return pa.Array.from_buffers(kind or pa.string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(body)])


def numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Integers or floats of numpy, not copied."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def mask(values: npt.NDArray[np.bool_]) -> pa.Array:
    """Truth values of numpy."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])
