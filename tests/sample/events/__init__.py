"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from contracts.events.alerts_raised import AlertRaised, Severity
from contracts.events.deadletters_settled import DeadLetterSettled, Settlement
from contracts.events.replay_started import ReplayStarted
from contracts.events.rules_activated import RulesActivated
from tests.sample.events.depots_observed import DepotObserved
from tests.sample.events.depots_served import DepotServed
from tests.sample.events.parcels_delivered import ParcelDelivered
from tests.sample.events.parcels_delivered_enriched import ParcelDeliveredEnriched
from tests.sample.events.parcels_dispatched import ParcelDispatched
from tests.sample.events.parcels_dispatched_counted import ParcelDispatchedCounted
from tests.sample.events.parcels_dispatched_delays import ParcelDispatchedDelays
from tests.sample.events.parcels_dispatched_enriched import ParcelDispatchedEnriched
from tests.sample.events.parcels_dispatched_finaldelays import ParcelDispatchedFinalDelays
from tests.sample.events.parcels_dispatched_heavy import HeavyParcelDispatched
from tests.sample.events.parcels_dispatched_losses import ParcelDispatchedLosses
from tests.sample.events.parcels_dispatched_once import ParcelDispatchedOnce
from tests.sample.events.parcels_dispatched_overdue import OverdueParcelDispatched
from tests.sample.events.parcels_dispatched_punctual import PunctualParcelDispatched
from tests.sample.events.parcels_dispatched_rounds import ParcelDispatchedRounds
from tests.sample.events.parcels_dispatched_slowest import ParcelDispatchedSlowest
from tests.sample.events.parcels_dispatched_trips import ParcelDispatchedTrip
from tests.sample.events.parcels_lost import ParcelLost

__all__ = [
    "AlertRaised",
    "DeadLetterSettled",
    "DepotObserved",
    "DepotServed",
    "HeavyParcelDispatched",
    "OverdueParcelDispatched",
    "ParcelDelivered",
    "ParcelDeliveredEnriched",
    "ParcelDispatched",
    "ParcelDispatchedCounted",
    "ParcelDispatchedDelays",
    "ParcelDispatchedEnriched",
    "ParcelDispatchedFinalDelays",
    "ParcelDispatchedLosses",
    "ParcelDispatchedOnce",
    "ParcelDispatchedRounds",
    "ParcelDispatchedSlowest",
    "ParcelDispatchedTrip",
    "ParcelLost",
    "PunctualParcelDispatched",
    "ReplayStarted",
    "RulesActivated",
    "Settlement",
    "Severity",
]
