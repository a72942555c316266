"""Modules that have moved: importing one under its former name raises an error with the new name, for one release."""

from collections.abc import Callable, Sequence
from typing import Any

MOVED = {
    "jdfl.accountant": "jdfl.engine.accountant",
    "jdfl.algorithms.differences": "jdfl.algorithms.step_sizes",
    "jdfl.algorithms.step_lengths": "jdfl.algorithms.step_sizes",
    "jdfl.arguments": "jdfl.base.arguments",
    "jdfl.audit": "jdfl.auditing",
    "jdfl.batch": "jdfl.engine.batch",
    "jdfl.blocks": "jdfl.devices.blocks",
    "jdfl.cache": "jdfl.engine.cache",
    "jdfl.catalogue": "jdfl.cli.catalogue",
    "jdfl.checkpoint": "jdfl.engine.checkpoint",
    "jdfl.checks": "jdfl.base.checks",
    "jdfl.clock": "jdfl.engine.clock",
    "jdfl.codecs.frame": "jdfl.codecs.base",
    "jdfl.codecs.recovery": "jdfl.codecs.gpsp",
    "jdfl.comparison": "jdfl.lab",
    "jdfl.config.compare": "jdfl.lab.settings",
    "jdfl.contents": "jdfl.engine.contents",
    "jdfl.device_memory": "jdfl.devices.memory",
    "jdfl.devices.placement": "jdfl.engine.placement",
    "jdfl.distributed": "jdfl.devices.processes",
    "jdfl.guard": "jdfl.engine.guard",
    "jdfl.interruption": "jdfl.engine.interruption",
    "jdfl.engine.keeper": "jdfl.engine.checkpoints",
    "jdfl.keeper": "jdfl.engine.checkpoints",
    "jdfl.keys": "jdfl.base.keys",
    "jdfl.lab.read": "jdfl.lab.runs",
    "jdfl.loop": "jdfl.engine.loop",
    "jdfl.memory": "jdfl.engine.placement",
    "jdfl.metrics": "jdfl.engine.metrics",
    "jdfl.moments": "jdfl.engine.moments",
    "jdfl.network.arcs": "jdfl.network.tables",
    "jdfl.network.contraction": "jdfl.network.requirements",
    "jdfl.network.delays": "jdfl.network.late",
    "jdfl.network.draws": "jdfl.network.random_families",
    "jdfl.network.edge_colouring": "jdfl.network.matching",
    "jdfl.network.matcha": "jdfl.network.matching",
    "jdfl.network.wrapping": "jdfl.network.links",
    "jdfl.nodes": "jdfl.devices.nodes",
    "jdfl.nonzeros": "jdfl.arrays.nonzeros",
    "jdfl.ops": "jdfl.arrays.ops",
    "jdfl.outcome": "jdfl.engine.outcome",
    "jdfl.overview": "jdfl.lab.overview",
    "jdfl.placement": "jdfl.engine.placement",
    "jdfl.programs": "jdfl.engine.programs",
    "jdfl.progress": "jdfl.engine.progress",
    "jdfl.projection": "jdfl.arrays.projection",
    "jdfl.provenance": "jdfl.engine.provenance",
    "jdfl.report": "jdfl.lab.page",
    "jdfl.result": "jdfl.engine.result",
    "jdfl.results": "jdfl.lab.results",
    "jdfl.runner": "jdfl.engine.runner",
    "jdfl.settings": "jdfl.base.settings",
    "jdfl.sharding": "jdfl.devices.layout",
    "jdfl.spending": "jdfl.engine.spending",
    "jdfl.stepping": "jdfl.engine.stepping",
    "jdfl.stopping": "jdfl.engine.stopping",
    "jdfl.storage": "jdfl.store.snapshots",
    "jdfl.streams": "jdfl.base.streams",
    "jdfl.struct": "jdfl.base.struct",
    "jdfl.study": "jdfl.lab.study",
    "jdfl.summary": "jdfl.lab.summary",
    "jdfl.trackers": "jdfl.lab.trackers",
    "jdfl.watch": "jdfl.lab.watch",
}
OF_BASE = {name: f"jdfl.algorithms.moment.{name}" for name in ("Info", "Moment", "counts")}  # when it was one module


def refusal(old: str, new: str) -> ModuleNotFoundError:
    """The error for a former name."""
    return ModuleNotFoundError(
        f"{old} is now {new} (change the import; this notice will be removed in the next release)", name=old
    )


class Finder:
    """An import hook that refuses the former names and knows no others."""

    @staticmethod
    def find_spec(name: str, _path: Sequence[str] | None = None, _target: object = None) -> None:
        """Find nothing, and raise ModuleNotFoundError for former names."""
        if name in MOVED:
            raise refusal(name, MOVED[name])


def refusing(find: Callable[[str], Any]) -> Callable[[str], Any]:
    """The package's `__getattr__`, which finds public names with `find` and refuses former names of modules."""

    def found(name: str) -> Any:
        try:
            return find(name)
        except AttributeError:
            if (old := f"jdfl.{name}") in MOVED:
                raise refusal(old, MOVED[old]) from None
            raise

    return found
