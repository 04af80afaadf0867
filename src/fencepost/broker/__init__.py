"""One node: connections, one module per API, and what they need around the log and the coordinators."""

from fencepost.broker import apis
from fencepost.broker.broker import Broker
from fencepost.broker.metadata.settings import BadSetting
from fencepost.broker.running import running_broker

__all__ = ["BadSetting", "Broker", "running_broker"]

assert apis, "importing the APIs registers them"
