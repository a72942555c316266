"""Nodes that lie: rules that combine rows although some are arbitrary, and what attackers send.

A rule takes the place of W x: `rule(graph, x)` gives every node a row computed from its own row and those of its
in-neighbours. An attack replaces the rows that some nodes send. `jdfl.RobustDSGD` uses a rule, `jdfl.combined_by` puts
one into another method, and `jdfl.attacked` lets some nodes of a method attack.
"""

from jdfl.robust.attacks import (
    ALIE,
    FOE,
    Attack,
    Dissensus,
    FreeRider,
    GaussianRows,
    LabelFlip,
    Mimic,
    Scene,
    SignFlip,
    SpectralAttack,
    TopologyLiar,
)
from jdfl.robust.distances import BALANCE, NNA, UBAR, ClippedGossip, CSPlus
from jdfl.robust.exposed import Weak, check_combines, check_honest, weak_nodes
from jdfl.robust.order import CoordinateMedian, TrimmedMean
from jdfl.robust.rule import Aimed, Received, Rule, Weighted
from jdfl.robust.selection import GeometricMedian, Krum, MultiKrum

RULES: dict[str, type[Rule]] = {
    one.kind: one
    for one in (
        CoordinateMedian,
        TrimmedMean,
        Krum,
        MultiKrum,
        GeometricMedian,
        ClippedGossip,
        NNA,
        CSPlus,
        UBAR,
        BALANCE,
        Weighted,
    )
}
ATTACKS: dict[str, type[Attack]] = {
    one.kind: one
    for one in (
        SignFlip,
        LabelFlip,
        GaussianRows,
        ALIE,
        FOE,
        Dissensus,
        SpectralAttack,
        Mimic,
        TopologyLiar,
        FreeRider,
    )
}

__all__ = [
    "ALIE",
    "ATTACKS",
    "BALANCE",
    "FOE",
    "NNA",
    "RULES",
    "UBAR",
    "Aimed",
    "Attack",
    "CSPlus",
    "ClippedGossip",
    "CoordinateMedian",
    "Dissensus",
    "FreeRider",
    "GaussianRows",
    "GeometricMedian",
    "Krum",
    "LabelFlip",
    "Mimic",
    "MultiKrum",
    "Received",
    "Rule",
    "Scene",
    "SignFlip",
    "SpectralAttack",
    "TopologyLiar",
    "TrimmedMean",
    "Weak",
    "Weighted",
    "check_combines",
    "check_honest",
    "weak_nodes",
]
