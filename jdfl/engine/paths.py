"""How records enter all outputs of a run, read from the traced programs of a method."""

from collections.abc import Sequence

import jax

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import planned
from jdfl.algorithms.statement import outputs, traced, values
from jdfl.base.arguments import checked
from jdfl.engine import metrics as metrics_module
from jdfl.engine.metrics import Metric
from jdfl.engine.spending import guarantee_of
from jdfl.engine.start import check_settings
from jdfl.engine.stepping import paired
from jdfl.network.graph import Network
from jdfl.privacy.flow import WHY, Flow, Label, Value
from jdfl.problems import Problem


@checked
def paths(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    steps: int = 1,
    metrics: Sequence[str | Metric] | None = None,
) -> dict[str, str]:
    """Every output of a run, with the reason where records enter it other than through a mechanism's noise.

    Keys are "message NAME" for every channel, "parameters", "metric NAME", "state PLACE" for every array of the state,
    which checkpoints hold, and the tables of nodes. An empty reason means that all of the output is computed from noisy
    releases of bounded values, and from what is public: it is covered by the guarantee of these, which `account_plan`
    gives. Nothing is run. Where a message has a reason, there is no guarantee.

    Args:
        algorithm: The settings of the method.
        problem: The nodes' data and losses; values that it declares public count as public.
        network: The communication network, with the same number of nodes.
        steps: Number of planned rounds, at least 1.
        metrics: Names or functions, as for `jdfl.run`; None: all that the problem can give.

    Raises:
        ValueError: For settings that do not go together, and for metrics that the problem cannot give.
    """
    network = paired(problem, network)
    check_settings(algorithm, problem, network)
    program = planned(algorithm, problem, network, steps)
    chosen = metrics_module.default_metrics(problem) if metrics is None else metrics_module.resolve(metrics, problem)
    programs = traced(algorithm, problem, program.plan)
    flows, params, state = outputs(programs, problem)
    leaks = flows[0].leaks | flows[1].leaks
    found = {f"message {name}": leaks.get(name, "") for name in (*(one.name for one in algorithm.channels), *leaks)}
    found["parameters"] = WHY[params]
    told = guarantee_of(program, problem)
    if not told.claimed and (told.event is not None or flows[0].noises or flows[1].noises):  # what noise does not hide
        found = {name: why or told.reason for name, why in found.items()}
    shape = jax.eval_shape(algorithm.params, programs.state)
    for metric in chosen:
        closed = jax.make_jaxpr(metric)(shape, problem)
        found[f"metric {metric.__name__}"] = WHY[
            max(one.label for one in Flow().walk(closed, [Value(params), *values(problem)]))
        ]
    for place, label in jax.tree.leaves_with_path(state):
        found[f"state {jax.tree_util.keystr(place)}"] = WHY[label]
    return found | dict.fromkeys(("nodes.csv", "split.csv"), WHY[Label.RAW])
