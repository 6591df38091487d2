"""Bugs planted on purpose, one at a time, to prove that the checkers see them.

Importing this package registers all of them. A bug is a function that returns patches: which attribute of which class or module
of the product is replaced, and by what. Its decorator names the world that must catch it, and within which seeds.

    registry           what a bug is, the table of all bugs, how one is planted and removed
    storage            one log and its data directory
    single_broker      a broker that serves requests alone; moves between data directories
    producers          producer state: sequences, epochs, snapshots, producer ids
    groups             the group coordinator
    transactions       transactions and their coordinator
    replicas           leaders, followers, the ISR
    controller         elections, ISR changes, reassignments, settings, terms
    schema_registry    who may write schemas, and what a write is decided by
    security           ACLs: confirmed too early, lost, or not applied
    broker_in_cluster  the controller's requests to a broker; coordinators that move
"""

from ottla.sim.bugs import (
    broker_in_cluster,
    controller,
    groups,
    producers,
    replicas,
    schema_registry,
    security,
    single_broker,
    storage,
    transactions,
)
from ottla.sim.bugs.registry import BUGS, IS_COMPILED, Bug, Patch, planted

__all__ = [
    "BUGS",
    "IS_COMPILED",
    "Bug",
    "Patch",
    "broker_in_cluster",
    "controller",
    "groups",
    "planted",
    "producers",
    "replicas",
    "schema_registry",
    "security",
    "single_broker",
    "storage",
    "transactions",
]
