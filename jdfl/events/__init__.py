"""No common clock: asynchronous methods, whose events are executed in waves as if one after another.

A new method is one file with a `jdfl.base.struct.dataclass` that inherits from `AsyncMethod`. The order within an event
of AGP is that of its authors' code.
"""

from jdfl.events.agp import AGP
from jdfl.events.async_choco import AsyncCHOCO, AsyncDOADP
from jdfl.events.event import Event, Neighbours
from jdfl.events.fed_async import FedAsync, FedBuff
from jdfl.events.method import AsyncMethod, Tables
from jdfl.events.pairwise import ADPSGD, RandomizedGossip, SwarmSGD
from jdfl.events.random_walk import RandomWalkSGD
from jdfl.events.swift import SWIFT
from jdfl.events.timeline import Events, Kind, Touch, in_order, meetings, wakes

_METHODS = (ADPSGD, SwarmSGD, RandomizedGossip, AGP, SWIFT, AsyncCHOCO, AsyncDOADP, RandomWalkSGD, FedAsync, FedBuff)
REGISTRY: dict[str, type[AsyncMethod]] = {method.kind: method for method in _METHODS}
"""The asynchronous methods by the names of the command line."""

__all__ = [
    "ADPSGD",
    "AGP",
    "REGISTRY",
    "SWIFT",
    "AsyncCHOCO",
    "AsyncDOADP",
    "AsyncMethod",
    "Event",
    "Events",
    "FedAsync",
    "FedBuff",
    "Kind",
    "Neighbours",
    "RandomWalkSGD",
    "RandomizedGossip",
    "SwarmSGD",
    "Tables",
    "Touch",
    "in_order",
    "meetings",
    "wakes",
]
