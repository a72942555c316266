"""Damaged folders: they are refused in words, give the result of the undamaged ones, or what was mended is said."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import jdfl
from jdfl.store import manifest
from tests.robustness import works
from tests.robustness.damage import damaged
from tests.robustness.outcomes import SILENT, WrongError, clean, said
from tests.robustness.works import LONGER, Work

REFUSED, RIGHT, MENDED, REPORTED = "refused", "the right result", "mended with a warning", "damage is reported"
EARLIER = "an earlier state that is whole"


class Attack:
    """One state of a work, and how it was damaged."""

    def __init__(self, work: Work, draw: Random) -> None:
        self.work = work
        earlier = work.cut
        if draw.random() < 0.5 or not earlier:
            self.state, self.finished = work.whole, True
        else:
            at = draw.randrange(len(earlier))
            self.state, self.finished, earlier = earlier[at], False, earlier[:at]
        self.folder = work.copied(self.state)
        self.how = damaged(self.folder, draw, work.other, earlier)

    def wrong(self, what: str, more: object) -> WrongError:
        """A silent wrong result."""
        return WrongError(SILENT, f"{what} of {self.state}, damaged: {self.how}: {str(more)[:600]}")


SHARES = [10, 10, 10, 10, 3, 3]  # of the works among the attacks


def folder(made: list[Work], draw: Random) -> str:
    """A folder is damaged, and a command or a function gets it."""
    work = draw.choices(made, SHARES[: len(made)])[0]
    attack = Attack(work, draw)
    if work.kind == "run":
        return draw.choices(list(OF_RUNS), [8, 4, 3, 3, 3, 3])[0](attack)
    return draw.choices([resumed, loaded, reported, verified], [6, 1, 1, 1])[0](attack)


def resumed(attack: Attack) -> str:
    """`jdfl resume`; a finished run goes on to more rounds."""
    work = attack.work
    on = attack.finished and work.kind == "run"
    options = LONGER if on else (STEPS_ALIKE if work.kind == "run" else ["--quiet"])
    ended = said(["resume", str(attack.folder), *options])
    if ended.status not in (0, 3):
        return REFUSED
    try:
        found = work.compared(work.longer if on else work.whole, attack.folder)
    except Exception as error:
        found = [repr(error)]
    if found:
        raise attack.wrong(f"resume, which said {ended.err[-300:]!r},", found)
    return MENDED if ended.warned else RIGHT


STEPS_ALIKE = ["--checkpoint-every", "4", "--quiet"]


def verified(attack: Attack) -> str:
    """`jdfl verify`."""
    ended = said(["verify", str(attack.folder), "--rounds", "8"])
    if ended.status == 1 and "NOT the same" in ended.out:
        return REPORTED
    if ended.status != 0:
        return REFUSED
    if attack.finished and attack.work.kind == "run":
        if manifest.NAME in attack.how:
            known = "not checked" in ended.out or _same_manifest(attack)
        else:
            here, was = (manifest.of(one)["files"] for one in (attack.folder, attack.state))
            known = all(here.get(name) == told for name, told in was.items())  # there may be more, which is said
            known &= all(f"not in the manifest: {name}" in ended.out for name in here if name not in was)
        if not known:
            raise attack.wrong("verify", ended.out)
    return RIGHT


def _same_manifest(attack: Attack) -> bool:
    return json.loads((attack.folder / manifest.NAME).read_text()) == json.loads(
        (attack.state / manifest.NAME).read_text()
    )


def exported(attack: Attack) -> str:
    """`jdfl export`."""
    ended, tables = works.exported(attack.folder)
    if ended.status:
        return REFUSED
    whole = attack.work.undamaged(attack.state, lambda: works.exported(attack.folder), "export")[1]
    if tables == whole:
        return RIGHT
    prefix = all(whole.get(name, "").startswith(text) for name, text in tables.items())
    if ended.warned and prefix:
        return MENDED
    if not attack.finished and attack.how.startswith("earlier") and prefix:
        return EARLIER
    raise attack.wrong(
        f"export, which said {ended.err[-300:]!r},", {name for name in whole if whole[name] != tables.get(name)}
    )


def reported(attack: Attack) -> str:
    """`jdfl report`."""
    ended, page = works.reported(attack.folder)
    if ended.status:
        return REFUSED
    if page == attack.work.undamaged(attack.state, lambda: works.reported(attack.folder), "report")[1]:
        return RIGHT
    if ended.warned:
        return MENDED
    if not attack.finished and attack.how.startswith("earlier"):
        return EARLIER
    raise attack.wrong("report", ended.err[-300:])


def loaded(attack: Attack) -> str:
    """`jdfl.load`."""
    found, warned = _called(lambda: jdfl.load(attack.folder), attack)
    if found is None:
        return REFUSED
    whole = attack.work.undamaged(attack.state, lambda: works.plain_of(jdfl.load(attack.folder)), "load")
    if works.plain_of(found) != whole:
        raise attack.wrong("load", warned)
    return RIGHT


def restored(attack: Attack) -> str:
    """`jdfl.read_checkpoint`."""
    found, warned = _called(lambda: jdfl.read_checkpoint(attack.folder, *attack.work.built), attack)
    if found is None:
        return REFUSED
    known = attack.work.checkpoints.get(found.rounds)  # all numbers occur
    if known is None or not works.same_checkpoint(found, known):
        raise attack.wrong("read_checkpoint", warned)
    return MENDED if warned else RIGHT


def _called(call: Callable[[], Any], attack: Attack) -> tuple[Any, list[str]]:
    """What a function returns, None where it refuses the folder; and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = call()
        except Exception as error:
            clean(error, attack.how)
            return None, []
    return found, [str(one.message) for one in caught]


OF_RUNS: list[Callable[[Attack], str]] = [resumed, verified, exported, reported, loaded, restored]


def attacks(few: bool = False) -> Callable[[Random], str]:
    """An attack on a folder; the works, or a `few`, are made in the current folder."""
    made = works.works(few)
    for work in made:
        print(f"{work.kind} {Path(*work.whole.parts[:1])}: {len(work.cut)} states before its end", flush=True)
    return lambda draw: folder(made, draw)
