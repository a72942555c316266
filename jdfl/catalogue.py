"""What there is to choose from, in words: `jdfl list`."""

import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints

from jdfl import models
from jdfl.config import CEPS, Codecs, RunConfig, members
from jdfl.metrics import REGISTRY as METRICS
from jdfl.problems import NAMES, datasets


def catalogue() -> str:
    """All kinds of all settings, all data sets and all metrics, a line for each."""
    run, ceps = get_type_hints(RunConfig), get_type_hints(CEPS)
    parts = {
        "algorithms (--algorithm)": about(members(run["algorithm"])),
        "problems (--problem)": about(members(run["problem"])),
        "data sets (--problem classification --problem.data)": {name: data_status(name) for name in NAMES},
        "models (--problem neural --problem.model)": about({name: getattr(models, name) for name in models.NAMES}),
        "networks (--network)": about(members(run["network"])),
        "codecs (--algorithm.codec)": about(members(Codecs)),
        "noise (--algorithm.mechanism)": about(members(ceps["mechanism"])),
        "stop rules (--stop)": about(members(run["stop"])),
        "metrics (--metrics)": about(METRICS),
    }
    width = max(len(name) for lines in parts.values() for name in lines)
    texts = (
        f"{head}\n" + "".join(f"  {name:<{width}}  {line}\n" for name, line in parts[head].items()) for head in parts
    )
    return "\n".join(texts)


def about(named: Mapping[str, Any]) -> dict[str, str]:
    """The first sentence of every docstring, by name."""
    return {name: (inspect.getdoc(value) or "").splitlines()[0] for name, value in named.items()}


def data_status(name: str) -> str:
    """Where a data set comes from: its file, a generator, scikit-learn, or what is missing."""
    if name in datasets.GENERATED:
        return "generated"
    try:
        path = datasets.locate(name)
    except FileNotFoundError as error:
        return "not found: " + str(error).split(". ")[0].removesuffix(" Download it from ")
    return "comes with scikit-learn" if path is None else f"found: {path}"
