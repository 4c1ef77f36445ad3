"""What a pipeline's file says: `pipeline`, `Pipeline`, `Lookup` for those that look something up, and `Memory` for those that remember."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from contracts.definitions.branches import fault_of_branches, targets_of
from contracts.definitions.lookup import Lookup
from contracts.definitions.sql_file import Output
from contracts.handle import Topic
from spark.lookups.join import dimensions_of
from spark.memory import Event, Memory, Remembered
from spark.runtime.errors import PipelineUnfit

__all__ = ["Event", "Lookup", "Memory", "Output", "Pipeline", "Remembered", "pipeline"]


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """Derives the events of the topic `writes` from those of the topic `source`, or of that and of the `second`; all are names of contracts.
    A branch writes several topics, by the names that its function puts into the column `branch`: each row goes to the one that is named there,
    and to none where it is null.

    The function receives a frame with the fields of the source and those that the lookups or the memory fill in. It returns one with the fields of the
    target except `unmatched`, `dimension_versions` and `revision`, which the platform fills in. Further columns are dropped. Where it
    explodes an array, each element makes an event; where it aggregates, each group, as often as `output` says; of two frames, in the order of
    its keywords, where it joins them, each pair, and where it aggregates their union, each group. A test may call it with frames of a few rows.
    """

    name: str
    source: str
    writes: str | Mapping[str, str]
    lookups: tuple[Lookup, ...]
    function: Callable[..., DataFrame]
    output: Output = "update"
    second: str | None = None
    memory: Memory | None = None

    @property
    def branches(self) -> Mapping[str, str]:
        """The topics of a branch, by name; empty for one that writes one topic."""
        return {} if isinstance(self.writes, str) else self.writes

    @property
    def targets(self) -> tuple[str, ...]:
        """All topics that it writes."""
        return targets_of(self.writes)

    @property
    def target(self) -> str:
        """The one topic that it writes. Raises PipelineUnfit if it writes several: what needs one can't be done with a branch."""
        if not isinstance(self.writes, str):
            raise PipelineUnfit(f"{self.name} writes {' and '.join(self.targets)}, where one topic is needed")
        return self.writes

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics that it reads, in the order of the function's parameters."""
        return (self.source,) if self.second is None else (self.source, self.second)

    @property
    def dimensions(self) -> list[str]:
        """The names of the dimensions that its lookups use."""
        return dimensions_of(self.lookups)

    def __call__(self, *events: DataFrame) -> DataFrame:
        """What the function makes of a frame, or of two."""
        return self.function(*events)


def pipeline(
    *,
    writes: Topic[Any] | Mapping[str, Topic[Any]],
    lookups: Sequence[Lookup] = (),
    memory: Memory | None = None,
    output: Output = "update",
    **reads: Topic[Any],
) -> Callable[[Callable[..., DataFrame]], Pipeline]:
    """Make a function a pipeline. The source topic is a keyword, which must be the name of the function's parameter; of a join or a union there are two.
    `writes` is the topic that it makes, or, by the values of the column `branch`, the two or more among which it shares its rows out.

    Consumer group, checkpoint, lease, transactional ids, dead letters and metrics bear the function's name. Raises TypeError if keywords and
    parameters differ, or the names of branches are no names.
    """

    def declared(function: Callable[..., DataFrame]) -> Pipeline:
        parameters = list(inspect.signature(function).parameters)
        if parameters != list(reads) or len(reads) not in (1, 2):
            raise TypeError(
                f"{function.__name__} takes {', '.join(parameters) or 'nothing'}, its pipeline reads {', '.join(reads) or 'nothing'}: "
                "name the topic that it reads, the two that it unites, or the two that it joins, by the names of its parameters, in their order"
            )
        source, *others = [each.name for each in reads.values()]
        second = others[0] if others else None
        named = writes.name if isinstance(writes, Topic) else {name: topic.name for name, topic in writes.items()}
        if not isinstance(named, str) and (fault := fault_of_branches(list(named.items()), len(reads))):
            raise TypeError(f"{function.__name__}: {fault}")
        return Pipeline(function.__name__, source, named, tuple(lookups), function, output, second, memory)

    return declared
