"""What stops a query on purpose."""

from __future__ import annotations

from contracts.errors import HeadraceError


class StopRequested(HeadraceError):
    """The process was asked to stop; the batch that is told so has done nothing yet and is run after the restart."""


class PipelineUnfit(HeadraceError):
    """A pipeline's function can't be run as its contracts say; the text says what to change in it."""


class SparkMoved(HeadraceError):
    """This version of Spark lacks what pipelines need of its private classes; the text names it."""


class PositionsDisagree(HeadraceError):
    """The checkpoint and the table contradict each other about what has been consumed."""


class StateLost(HeadraceError):
    """The checkpoint does not hold the state of what an aggregate has written; the text says what to set."""


class PositionsTooLong(HeadraceError):
    """The brokers take no position with what has to stand beside it; the text says what to set."""


class QueryFailed(HeadraceError):
    """A query ended that should run for ever; the text is its cause in one line."""


class NotWritten(QueryFailed):
    """What a query in real-time mode took waits for its target partition. That is no reason to end it."""


class SinkRefused(HeadraceError):
    """Writing the batch would lose or double records, or drain a topic into its dead letters; none of it was written."""


class DeadLettersMiscounted(HeadraceError):
    """Not as many dead letters were written as a batch has bad records; the batch is not committed."""


class TooFewSlots(HeadraceError):
    """Spark has fewer task slots than the query needs at once; the text says how to give it more."""


class TakenOver(HeadraceError):
    """Another process writes the table, or runs the query, or may do so because this one was silent for too long; the text
    names it.
    """


class StoreUnfit(HeadraceError):
    """The object store lacks what keeps two writers apart."""


class ClusterUnfit(HeadraceError):
    """The cluster's connections would carry keys in clear; the text says what to set."""


class ScratchUnusable(HeadraceError):
    """Spark can have no files on the disk; the text says where, and what to do."""


class RepairFailed(HeadraceError):
    """Rows can't be repaired now, or not all of them were; what was sent and committed before holds."""


class TrialFailed(HeadraceError):
    """What a pipeline would make of the records that are there can't be found out now."""


class StateUnreadable(HeadraceError):
    """What a pipeline's state holds can't be told now; the text says why, and what to do."""


class DimensionUnreadable(HeadraceError):
    """A dimension's table is not there, or its files are missing or damaged."""
