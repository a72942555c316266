"""Suggestions for mistyped names: "Did you mean 'd-psgd'?".

A name is compared without its case, dashes, underscores, dots and spaces, then through the words that other libraries
use for a setting (learning_rate for lr), then by its spelling. Only the standard library is imported, and difflib only
when something is wrong.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Cls = TypeVar("Cls", bound=type)
_CLOSE = 0.65  # of difflib's ratio, from which two spellings are taken for one word

_WORDS = """
lr: learning_rate learningrate step_size stepsize rate eta alpha
m: nodes num_nodes n_nodes number_of_nodes agents num_agents clients num_clients workers num_workers
n: parameters dim dimension features num_features
steps: rounds num_rounds max_rounds iterations iters num_iterations max_iter epochs num_steps max_steps
seed: seeds random_seed random_state rng
key: seed random_seed random_state rng rng_key
epsilon: eps
delta: failure_probability
network: topology graph communication
problem: task loss dataset objective
algorithm: algo method optimizer optimiser
data: dataset data_set
batch: batch_size batchsize minibatch
codec: compression compressor quantizer quantiser
mechanism: noise privacy_noise dp
multiplier: noise_multiplier sigma noise
clip: clipping clip_norm max_grad_norm clipping_threshold
s: sparsity nonzeros nnz
degree: k neighbours neighbors num_neighbours num_neighbors
p: probability prob drop drop_rate
alpha: dirichlet concentration
partition: split
model: net architecture
devices: gpus gpu device
out: output outdir output_dir folder
repeats: runs trials num_seeds
every: log_every eval_every record_every log_interval
stop: stopping early_stopping until
period: local_steps
metrics: metric
delays: latency
sgp: push_sum
dsgt: gradient_tracking
sparse: topk top_k
watts-strogatz: small_world
barabasi-albert: scale_free
random-matching: gossip
torus: grid
complete: fully_connected full clique
edge-list-file: file
"""
SYNONYMS: dict[str, tuple[str, ...]] = {}  # by the normalised word: the names that it may stand for
"""What other libraries call a setting, by that name: the names of it here, the likeliest first."""


def plain(name: str) -> str:
    """A name in lower case, without dashes, underscores, dots and spaces."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


for _line in _WORDS.strip().splitlines():
    _name, _, _others = _line.partition(": ")
    for _word in map(plain, _others.split()):
        SYNONYMS[_word] = (*SYNONYMS.get(_word, ()), _name)


def meanings(name: str) -> tuple[str, ...]:
    """The names that a word of another library may stand for, the likeliest first; num_ or n_ before it is ignored."""
    word = plain(name)
    counted = next((word.removeprefix(one) for one in ("numberof", "num", "n") if word.startswith(one)), word)
    return SYNONYMS.get(word) or SYNONYMS.get(counted, ())


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None where no name is close."""
    names, wanted = {plain(one): one for one in reversed(list(known))}, plain(name)
    if not wanted:
        return None
    if wanted in names:
        return names[wanted]
    for other in map(plain, meanings(name)):
        if other in names:
            return names[other]
    from difflib import SequenceMatcher

    def score(one: str) -> float:
        if _one_slip(wanted, one):  # a plural, such as steps for step, before another letter, such as stop
            return 1.0 + (one in (f"{wanted}s", wanted.removesuffix("s")))
        alike = SequenceMatcher(None, wanted, one).ratio()
        if min(len(one), len(wanted)) >= 3 and (one.startswith(wanted) or wanted.startswith(one)):
            alike = max(alike, _CLOSE + 0.1)
        return alike + 0.02 * (one[0] == wanted[0])

    best = max(names, key=score, default=None)
    if best is None or len(wanted) < 2 or len(best) < 2 or score(best) < _CLOSE:
        return None
    return names[best]


def _one_slip(a: str, b: str) -> bool:
    """Whether a letter was left out, added or replaced, or two that stand side by side were exchanged."""
    start = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    a, b = a[start:], b[start:]
    end = next((i for i, (x, y) in enumerate(zip(a[::-1], b[::-1])) if x != y), min(len(a), len(b)))
    a, b = a[: len(a) - end], b[: len(b) - end]
    return max(len(a), len(b)) <= 1 or (len(a) == len(b) == 2 and a == b[::-1])


def hint(name: object, known: Iterable[object]) -> str:
    """A sentence that asks whether the closest known name was meant; empty where no name is close."""
    if not isinstance(name, str):
        return ""
    found = closest(name, [one for one in known if isinstance(one, str)])
    return f"Did you mean {found!r}?" if found is not None and found != name else ""


def attributes(
    package: str, find: Callable[[str], Any], known: Iterable[str], others: Callable[[str], str | None] = lambda _: None
) -> Callable[[str], Any]:
    """A package's `__getattr__` whose errors suggest the closest public name."""
    names = list(known)

    def found(name: str) -> Any:
        try:
            return find(name)
        except AttributeError:
            if name.startswith("_"):
                raise
            meant = others(plain(name)) or closest(name, names)
            text = "" if meant is None else f" Did you mean {package}.{meant}?"
            raise AttributeError(f"module {package!r} has no attribute {name!r}.{text}", name=name) from None

    return found


def arguments(call: str, given: Iterable[str], known: Iterable[str]) -> TypeError | None:
    """The error for the first argument whose name a function does not have; None where all names are known."""
    names = list(known)
    for name in given:
        if name not in names:
            meant = closest(name, names)
            rest = f"Did you mean {meant!r}?" if meant else f"It takes {', '.join(names) or 'none'}."
            return TypeError(f"{call}() has no argument {name!r}. {rest}")
    return None


def init(cls: Cls) -> Cls:
    """The dataclass, whose `__init__` suggests the right name for an argument that it does not have."""
    import functools

    original: Any = cls.__init__
    names = [name for name, one in cls.__dataclass_fields__.items() if one.init]

    @functools.wraps(original)
    def checked(self: Any, /, *args: Any, **named: Any) -> None:
        try:
            original(self, *args, **named)
        except TypeError:
            if error := arguments(cls.__name__, named, names):
                raise error from None
            raise

    setattr(cls, "__init__", checked)  # noqa: B010 (a type checker's view of __init__)
    return cls
