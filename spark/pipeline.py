"""What a pipeline's file says: `pipeline`, `Pipeline`, and `Lookup` for those that look something up."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from contracts.definitions.sql_file import Output
from contracts.handle import Topic
from spark.lookups.join import dimensions_of
from spark.lookups.lookup import Lookup

__all__ = ["Lookup", "Output", "Pipeline", "pipeline"]


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """Derives the events of the topic `target` from those of the topic `source`; both are names of contracts.

    The function receives a frame with the fields of the source and those that the lookups fill in. It returns one with the fields of the
    target except `unmatched`, `dimension_versions` and `revision`, which the platform fills in. Further columns are dropped. Where it
    explodes an array, each element makes an event; where it aggregates, each group, as often as `output` says. A test may call it with
    a frame of a few rows.
    """

    name: str
    source: str
    target: str
    lookups: tuple[Lookup, ...]
    function: Callable[[DataFrame], DataFrame]
    output: Output = "update"

    @property
    def dimensions(self) -> list[str]:
        """The names of the dimensions that its lookups use."""
        return dimensions_of(self.lookups)

    def __call__(self, events: DataFrame) -> DataFrame:
        """What the function makes of a frame."""
        return self.function(events)


def pipeline(
    *, writes: Topic[Any], lookups: Sequence[Lookup] = (), output: Output = "update", **reads: Topic[Any]
) -> Callable[[Callable[[DataFrame], DataFrame]], Pipeline]:
    """Make a function a pipeline. The source topic is a keyword, which must be the name of the function's one parameter.

    Consumer group, checkpoint, lease, transactional ids, dead letters and metrics bear the function's name. Raises TypeError if keyword and
    parameter differ.
    """

    def declared(function: Callable[[DataFrame], DataFrame]) -> Pipeline:
        parameters = list(inspect.signature(function).parameters)
        if parameters != list(reads) or len(reads) != 1:
            raise TypeError(
                f"{function.__name__} takes {', '.join(parameters) or 'nothing'}, its pipeline reads {', '.join(reads) or 'nothing'}: "
                "name the one topic that it reads by the name of its one parameter"
            )
        (source,) = reads.values()
        return Pipeline(function.__name__, source.name, writes.name, tuple(lookups), function, output)

    return declared
