"""`jdfl list`: all kinds, datasets and metrics, with a line for each."""

from collections.abc import Mapping
from typing import Any

from jdfl import config, models
from jdfl.config.families import RULES
from jdfl.config.kinds import described, first_line
from jdfl.engine.metrics import REGISTRY as METRICS
from jdfl.problems import NAMES, datasets
from jdfl.robust import ATTACKS


def catalogue() -> str:
    """All kinds of all settings, all datasets and all metrics, a line for each."""
    parts = {
        "algorithms (--algorithm)": _kinds(config.ALGORITHMS),
        "problems (--problem)": _kinds(config.PROBLEMS),
        "datasets (--problem classification --problem.data)": {name: data_status(name) for name in NAMES},
        "models (--problem neural --problem.model)": about({name: getattr(models, name) for name in models.NAMES}),
        "networks (--network)": _kinds(config.NETWORKS),
        "codecs (--algorithm.codec)": _kinds(config.CODECS),
        "noise (--algorithm.mechanism)": _kinds(config.MECHANISMS),
        "stop rules (--stop)": _kinds(config.STOPS),
        "robust rules (--algorithm.rule)": _kinds(RULES),
        "attacks (jdfl.robust)": {name: _sourced(first_line(one), one) for name, one in ATTACKS.items()},
        "metrics (--metrics)": about(METRICS),
    }
    width = max(len(name) for lines in parts.values() for name in lines)
    texts = (
        f"{head}\n" + "".join(f"  {name:<{width}}  {line}\n" for name, line in parts[head].items()) for head in parts
    )
    return "\n".join(texts)


def _kinds(family: config.Family) -> dict[str, str]:
    """A line about every kind of a family, with what it was written from, and its package if that is not jdfl."""
    return {kind: _sourced(described(cls), cls.source) for kind, cls in family.kinds.items()}


def _sourced(line: str, source: Any) -> str:
    """A line with what a class was written from."""
    found = getattr(source, "provenance", ())
    return f"{line} [{', '.join(found)}]" if found else line


def about(named: Mapping[str, Any]) -> dict[str, str]:
    """The first sentence of every docstring, by name."""
    return {name: first_line(value) for name, value in named.items()}


def data_status(name: str) -> str:
    """Where a dataset comes from: its file, a generator, scikit-learn, or what is missing."""
    if name in datasets.GENERATED:
        return "generated"
    try:
        path = datasets.locate(name)
    except FileNotFoundError as error:
        return "not found: " + str(error).split(". ")[0].removesuffix(" Download it from ")
    return "comes with scikit-learn" if path is None else f"found: {path}"
