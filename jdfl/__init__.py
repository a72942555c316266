"""jdfl: decentralized federated learning, all nodes at once.

result = jdfl.run(jdfl.CEPS.paper(s=10), jdfl.problems.example1(m=32), jdfl.network.erdos_renyi(32), steps=200,
stop=jdfl.consensus_below(5e-3, per=10))

Public names are listed in __init__.pyi; a module is imported when one of its names is first used.
"""

import lazy_loader

from jdfl.base import hooks, suggest

__version__ = "0.1.0"

_public, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_SPELT = {"dcdpsgd": "DCD", "chocosgd": "CHOCO", "ihtdpsgd": "IHT", "pushsum": "SGP", "gradienttracking": "DSGT"}
__getattr__ = suggest.attributes(__name__, _public, __all__, _SPELT.get)

hooks.register(
    plot=("jdfl.lab.plots", "of_result"),
    plot_network=("jdfl.lab.plots", "of_network"),
    save=("jdfl.results.folder", "write_run"),
    report=("jdfl.lab.overview", "write_report"),
    describe=("jdfl.lab.words", "of_result"),
    plot_partition=("jdfl.lab.splits", "of_problem"),
)
