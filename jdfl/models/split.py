"""Which parameters are shared: parts of a model by preset, pattern or predicate."""

from collections.abc import Callable
from fnmatch import fnmatchcase

from jdfl import checks

Part = str | tuple[str, ...] | Callable[[str], bool]
Presets = tuple[tuple[str, tuple[str, ...]], ...]


def chosen(paths: tuple[str, ...], part: Part, presets: Presets, argument: str, model: str) -> tuple[str, ...]:
    """The paths in one part, in the order given; `argument` is what the part is called in errors."""
    if callable(part):
        return tuple(path for path in paths if part(path))
    patterns = part
    if isinstance(part, str):
        known = {**dict(presets), "all": ("*",)}
        remedy = f"These are the presets of {model}; patterns go into a tuple, as in ('layer1.*',)."
        checks.one_of(known, remedy, **{argument: part})
        patterns = known[part]
    for pattern in patterns:
        if not any(fnmatchcase(path, pattern) for path in paths):
            raise ValueError(
                f"Expected {argument} to fit parameters of {model}, got {pattern!r}. It has {', '.join(paths)}."
            )
    return tuple(path for path in paths if any(fnmatchcase(path, pattern) for pattern in patterns))


def partition(paths: tuple[str, ...], shared: tuple[str, ...], local: tuple[str, ...]) -> None:
    """ValueError naming the first path that is in neither part or in both."""
    for path in paths:
        count = (path in shared) + (path in local)
        if count != 1:
            where = "both" if count else "neither"
            raise ValueError(f"Expected every parameter in one of shared and local, got {path} in {where}.")
