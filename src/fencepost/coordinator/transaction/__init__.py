"""The transaction coordinator: transactional ids, their epochs and states, and how their transactions end."""

from fencepost.coordinator.transaction.answers import Added, Ended, Initialized
from fencepost.coordinator.transaction.coordinator import TransactionCoordinator
from fencepost.coordinator.transaction.differences import DIFFERENCES, Difference, Ground
from fencepost.coordinator.transaction.listing import Description, Filters, Listed, Listing
from fencepost.coordinator.transaction.markers import Marker, Markers, Results
from fencepost.coordinator.transaction.producer_ids import BlockProducerIds, ProducerIds, ProducerIdStore
from fencepost.coordinator.transaction.settings import TransactionSettings
from fencepost.coordinator.transaction.state import State
from fencepost.protocol.types import ProducerIdAndEpoch

__all__ = [
    "DIFFERENCES",
    "Added",
    "BlockProducerIds",
    "Description",
    "Difference",
    "Ended",
    "Filters",
    "Ground",
    "Initialized",
    "Listed",
    "Listing",
    "Marker",
    "Markers",
    "ProducerIdAndEpoch",
    "ProducerIdStore",
    "ProducerIds",
    "Results",
    "State",
    "TransactionCoordinator",
    "TransactionSettings",
]
