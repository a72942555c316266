"""RobustDSGD: its step with momentum, and two kinds of rules, one with weights."""

import jdfl
from jdfl.robust import ClippedGossip, TrimmedMean, Weighted
from tests.field.row import ROUNDS, Loop, Rounds, field
from tests.robust.loops import combined


def loop(the: Loop) -> Rounds:
    """Step, then the rule at every node by a loop in NumPy."""
    settings, x = the.algorithm, the.start
    u = 0 * x
    for _ in range(ROUNDS):
        u = settings.beta * u + the.gradients(x)
        x = combined(settings.rule, the.W, x - settings.lr * u)
        yield x


_MEAN = jdfl.RobustDSGD(lr=0.05, rule=Weighted())
ROWS = (
    field(
        jdfl.RobustDSGD(lr=0.05, rule=ClippedGossip(), beta=0.5),
        loop,
        same=((_MEAN, jdfl.DPSGD(lr=0.05, order="adapt-then-combine")),),
    ),
    field(jdfl.RobustDSGD(lr=0.05, rule=TrimmedMean()), loop, label="BRIDGE-T"),
)
