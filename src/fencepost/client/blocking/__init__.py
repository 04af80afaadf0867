"""The clients without asyncio: every call returns when it is done.

Each client has an event loop in a thread of its own; use one client per thread, or take turns.
"""

from fencepost.client.blocking.admin import Admin
from fencepost.client.blocking.consumer import Consumer
from fencepost.client.blocking.exactly_once import ExactlyOnce, Transaction
from fencepost.client.blocking.producer import Producer
from fencepost.client.delivery import Delivery

__all__ = ["Admin", "Consumer", "Delivery", "ExactlyOnce", "Producer", "Transaction"]
