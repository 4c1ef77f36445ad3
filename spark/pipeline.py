"""What a pipeline's file says: `pipeline`, `Pipeline`, and `Lookup` for those that look something up."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from contracts.handle import Topic
from spark.lookups.join import dimensions_of
from spark.lookups.lookup import Lookup

__all__ = ["Lookup", "Pipeline", "pipeline"]


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """One topic's events made of another's. `source` and `target` are the names of their contracts.

    The function gets a frame with the fields of the source's contract and those that the lookups fill in. It gives one with the fields of
    the target's contract but `unmatched`, `dimension_versions` and `revision`, which the platform fills in; further columns are
    left out. It may be called in a test, with frames of a few rows.
    """

    name: str
    source: str
    target: str
    lookups: tuple[Lookup, ...]
    function: Callable[[DataFrame], DataFrame]

    @property
    def dimensions(self) -> list[str]:
        """Those that it looks up in."""
        return dimensions_of(self.lookups)

    def __call__(self, events: DataFrame) -> DataFrame:
        """What the function makes of a frame."""
        return self.function(events)


def pipeline(
    *, writes: Topic[Any], name: str | None = None, lookups: Sequence[Lookup] = (), **reads: Topic[Any]
) -> Callable[[Callable[[DataFrame], DataFrame]], Pipeline]:
    """Make a function a pipeline: its one parameter is named here, with the topic whose events it gets.

    Consumer group, checkpoint, lease, transactional ids and metrics are called by the `name`, the function's if there is none. Raises
    TypeError if the parameters are not those of the function.
    """

    def declared(function: Callable[[DataFrame], DataFrame]) -> Pipeline:
        parameters = list(inspect.signature(function).parameters)
        if parameters != list(reads) or len(reads) != 1:
            raise TypeError(
                f"{function.__name__} takes {', '.join(parameters) or 'nothing'}, its pipeline reads {', '.join(reads) or 'nothing'}: "
                "name the one topic that it reads by the name of its one parameter"
            )
        (source,) = reads.values()
        return Pipeline(name or function.__name__, source.name, writes.name, tuple(lookups), function)

    return declared
