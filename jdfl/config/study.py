"""A whole study as one frozen value: the configuration of a run, and the values to try in it."""

from dataclasses import dataclass

from jdfl.config import RunConfig, yaml_text


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """All settings of a study."""

    over: tuple[str, ...] = ()
    """Values to try: setting=value,value,... or, with `random`, setting=uniform:LOW:HIGH, or log, or int."""
    random: int | None = None
    """Number of points to draw at random; none: all combinations of the values."""
    draw: int = 0
    """Seed of these points."""
    seeds: int = 1
    """Number of runs of every point, with the seeds `base.seed`, `base.seed` + 1, ..."""
    base: RunConfig = RunConfig()  # noqa: RUF009 (frozen)
    """All other settings."""


def to_yaml(config: StudyConfig) -> str:
    """The configuration as YAML that `from_yaml` reads back to an equal value."""
    return yaml_text.dump(config)


def from_yaml(text: str) -> StudyConfig:
    """The configuration in a YAML text; ValueError names what does not fit."""
    return yaml_text.load(StudyConfig, text)
