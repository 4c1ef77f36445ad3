"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from typing import Final

from contracts.handle import Topic
from tests.sample import events

ALERTS_RAISED: Final[Topic[events.AlertRaised]] = Topic("alerts.raised.v1", events.AlertRaised)
"""Every match of a threshold rule, once for each rule version and record."""
DEADLETTERS_SETTLED: Final[Topic[events.DeadLetterSettled]] = Topic("deadletters.settled.v1", events.DeadLetterSettled)
"""What became of each dead letter that `headrace dlq` redrove or purged; the ledger that makes a redrive happen once."""
DEPOTS_OBSERVED: Final[Topic[events.DepotObserved]] = Topic("depots.observed.v1", events.DepotObserved)
"""Hourly readings of the instruments at the depots."""
DEPOTS_SERVED: Final[Topic[events.DepotServed]] = Topic("depots.served.v1", events.DepotServed)
"""Depots that delivered parcels have been served by, each parcel's origin and destination."""
PARCELS_DELIVERED: Final[Topic[events.ParcelDelivered]] = Topic("parcels.delivered.v1", events.ParcelDelivered)
"""Every parcel that reached its destination."""
PARCELS_DELIVERED_ENRICHED: Final[Topic[events.ParcelDeliveredEnriched]] = Topic(
    "parcels.delivered.enriched.v1", events.ParcelDeliveredEnriched
)
"""Delivered parcels with courier, depot and van filled in from the dimensions, and their rate."""
PARCELS_DISPATCHED: Final[Topic[events.ParcelDispatched]] = Topic("parcels.dispatched.v1", events.ParcelDispatched)
"""Every parcel that left its depot."""
PARCELS_DISPATCHED_COUNTED: Final[Topic[events.ParcelDispatchedCounted]] = Topic(
    "parcels.dispatched.counted.v1", events.ParcelDispatchedCounted
)
"""Parcels that left their depot late, with how many before them did in the same van."""
PARCELS_DISPATCHED_DELAYS: Final[Topic[events.ParcelDispatchedDelays]] = Topic(
    "parcels.dispatched.delays.v1", events.ParcelDispatchedDelays
)
"""Dispatches of each depot in windows of fifteen minutes, and how late they were; the newest record of a window counts."""
PARCELS_DISPATCHED_ENRICHED: Final[Topic[events.ParcelDispatchedEnriched]] = Topic(
    "parcels.dispatched.enriched.v1", events.ParcelDispatchedEnriched
)
"""Dispatched parcels with courier, depots and van filled in from the dimensions."""
PARCELS_DISPATCHED_FINALDELAYS: Final[Topic[events.ParcelDispatchedFinalDelays]] = Topic(
    "parcels.dispatched.finaldelays.v1", events.ParcelDispatchedFinalDelays
)
"""Dispatches of each depot in windows of fifteen minutes, and how late they were, each once, when nothing can change it any more."""
PARCELS_DISPATCHED_HEAVY: Final[Topic[events.HeavyParcelDispatched]] = Topic(
    "parcels.dispatched.heavy.v1", events.HeavyParcelDispatched
)
"""Dispatched parcels of 2,000 grams or more."""
PARCELS_DISPATCHED_LOSSES: Final[Topic[events.ParcelDispatchedLosses]] = Topic(
    "parcels.dispatched.losses.v1", events.ParcelDispatchedLosses
)
"""Parcels of each depot in windows of an hour that begin every quarter of an hour, how many were lost, and how late the others left; the newest record of a window counts."""
PARCELS_DISPATCHED_ONCE: Final[Topic[events.ParcelDispatchedOnce]] = Topic(
    "parcels.dispatched.once.v1", events.ParcelDispatchedOnce
)
"""Every parcel that left its depot, once, though its dispatch may have been sent again."""
PARCELS_DISPATCHED_OVERDUE: Final[Topic[events.OverdueParcelDispatched]] = Topic(
    "parcels.dispatched.overdue.v1", events.OverdueParcelDispatched
)
"""Dispatched parcels that are more than fifteen minutes late."""
PARCELS_DISPATCHED_PUNCTUAL: Final[Topic[events.PunctualParcelDispatched]] = Topic(
    "parcels.dispatched.punctual.v1", events.PunctualParcelDispatched
)
"""Dispatched parcels that are at most fifteen minutes late."""
PARCELS_DISPATCHED_ROUNDS: Final[Topic[events.ParcelDispatchedRounds]] = Topic(
    "parcels.dispatched.rounds.v1", events.ParcelDispatchedRounds
)
"""Rounds of each van, parcels that are dispatched closely after each other, and how late they were, each once, when it is over."""
PARCELS_DISPATCHED_SLOWEST: Final[Topic[events.ParcelDispatchedSlowest]] = Topic(
    "parcels.dispatched.slowest.v1", events.ParcelDispatchedSlowest
)
"""The three lines with the highest mean delay of all their dispatches; the newest record of a place counts."""
PARCELS_DISPATCHED_TRIPS: Final[Topic[events.ParcelDispatchedTrip]] = Topic(
    "parcels.dispatched.trips.v1", events.ParcelDispatchedTrip
)
"""Every parcel that left its depot, with its delivery; without, if it was not delivered within twenty hours."""
PARCELS_LOST: Final[Topic[events.ParcelLost]] = Topic("parcels.lost.v1", events.ParcelLost)
"""Every parcel that was lost before it was dispatched."""
REPLAY_STARTED: Final[Topic[events.ReplayStarted]] = Topic("replay.started.v1", events.ReplayStarted)
"""The replay clock that the replaying services share; the newest record is in force."""
RULES_ACTIVATED: Final[Topic[events.RulesActivated]] = Topic("rules.activated.v1", events.RulesActivated)
"""Which alert rules apply from which record of a partition on; with it the alerts can be recomputed from the records."""
