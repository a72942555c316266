"""Damaged folders: they are refused in words, give the result of the undamaged ones, or what was mended is said."""

import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import jdfl
from jdfl.store import lease, manifest
from tests.robustness import works
from tests.robustness.outcomes import SILENT, WrongError, clean, said
from tests.robustness.works import LONGER, Work

REFUSED, RIGHT, MENDED, REPORTED = "refused", "the right result", "mended with a warning", "damage is reported"
EARLIER = "an earlier state that is whole"
KINDS = ["flip", "cut", "empty", "remove", "other", "folder", "swap", "append", "emptied", "earlier"]


def damaged(folder: Path, draw: Random, other: Path, earlier: Sequence[Path]) -> str:
    """Damages one place of a folder, or puts files of `other` or of an `earlier` state there; says how, kind first."""
    before = _contents(folder)
    while True:
        how = draw.choice(KINDS)
        what = _one(folder, how, draw, other, earlier)
        if what and _contents(folder) != before:
            return f"{how} {what}"


def _contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def _one(folder: Path, how: str, draw: Random, other: Path, earlier: Sequence[Path]) -> str:
    """What was damaged; empty where there is nothing that can be damaged like this."""
    if how == "emptied":
        folders = sorted(path for path in folder.rglob("*") if path.is_dir())
        for place in draw.sample(folders, min(1, len(folders))):
            shutil.rmtree(place)
            place.mkdir()
            return str(place.relative_to(folder))
        return ""
    if how == "earlier":
        return _put_back(folder, draw, draw.choice(earlier)) if earlier else ""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != lease.NAME)
    own = [path for path in files if path.parent == folder]
    path = draw.choice(own if own and draw.random() < 0.7 else files)  # of those in folders in it there are many
    name = str(path.relative_to(folder))
    if how == "other":
        if not (other / name).is_file():
            return ""
        shutil.copyfile(other / name, path)
    elif how in ("remove", "folder"):
        path.unlink()
        if how == "folder":
            path.mkdir()
    else:
        path.write_bytes(_bytes(path.read_bytes(), how, draw))
    return name


def _bytes(content: bytes, how: str, draw: Random) -> bytes:
    at = draw.randrange(len(content)) if content else 0
    if how == "flip" and content:
        return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]
    if how == "append":
        return content + draw.choice([draw.randbytes(draw.randint(1, 60)), b"\n", b"\0" * 40, content[at:]])
    if how == "swap":
        lines = content.splitlines(keepends=True)
        i, j = draw.choices(range(len(lines)), k=2) if lines else (0, 0)
        return b"".join(lines[j if k == i else i if k == j else k] for k in range(len(lines)))
    return content[:at] if how == "cut" else b""


def _put_back(folder: Path, draw: Random, before: Path) -> str:
    """One, two or three files or folders of an earlier state, as of a backup that was partly put back."""
    names = sorted(path.name for path in before.iterdir() if path.name != lease.NAME)
    chosen = draw.sample(names, min(len(names), draw.randint(1, 3)))
    for name in chosen:
        if (before / name).is_dir():
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(before / name, folder / name)
        else:
            shutil.copyfile(before / name, folder / name)
    return ", ".join(chosen)


class Attack:
    """One state of a work, and how it was damaged."""

    def __init__(self, work: Work, draw: Random) -> None:
        at = draw.randrange(len(work.cut)) if work.cut and draw.random() < 0.5 else None
        self.work, self.finished = work, at is None
        self.state = work.whole if at is None else work.cut[at]
        self.folder = work.copied(self.state)
        self.how = damaged(self.folder, draw, work.other, work.cut[:at])

    def wrong(self, what: str, more: object) -> WrongError:
        """A silent wrong result."""
        return WrongError(SILENT, f"{what} of {self.state}, damaged: {self.how}: {str(more)[:600]}")

    def other(self, what: str, warned: bool, more: object, *, begins: bool = True) -> str:
        """What a result is that differs from the undamaged one; WrongError unless that is said or an earlier one."""
        if warned and begins:
            return MENDED
        if not self.finished and self.how.startswith("earlier") and begins:
            return EARLIER
        raise self.wrong(what, more)


def resumed(attack: Attack) -> str:
    """`jdfl resume`; a finished run goes on to more rounds."""
    work, run = attack.work, attack.work.kind == "run"
    on = attack.finished and run
    options = LONGER if on else ["--checkpoint-every", "4", "--quiet"] if run else ["--quiet"]
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


def verified(attack: Attack) -> str:
    """`jdfl verify`."""
    ended = said(["verify", str(attack.folder), "--rounds", "8"])
    if ended.status == 1 and "NOT the same" in ended.out:
        return REPORTED
    if ended.status != 0:
        return REFUSED
    if attack.finished and attack.work.kind == "run":
        if manifest.NAME in attack.how:
            here, was = (json.loads((one / manifest.NAME).read_text()) for one in (attack.folder, attack.state))
            known = "not checked" in ended.out or here == was
        else:
            here, was = (manifest.of(one)["files"] for one in (attack.folder, attack.state))
            known = all(here.get(name) == told for name, told in was.items())  # there may be more, which is said
            known &= all(f"not in the manifest: {name}" in ended.out for name in here if name not in was)
        if not known:
            raise attack.wrong("verify", ended.out)
    return RIGHT


def exported(attack: Attack) -> str:
    """`jdfl export`."""
    ended, tables = works.exported(attack.folder)
    if ended.status:
        return REFUSED
    whole = attack.work.undamaged(attack.state, lambda: works.exported(attack.folder), "export")[1]
    if tables == whole:
        return RIGHT
    prefix = all(whole.get(name, "").startswith(text) for name, text in tables.items())
    changed = {name for name in whole if whole[name] != tables.get(name)}
    return attack.other(f"export, which said {ended.err[-300:]!r},", ended.warned, changed, begins=prefix)


def reported(attack: Attack) -> str:
    """`jdfl report`."""
    ended, page = works.reported(attack.folder)
    if ended.status:
        return REFUSED
    if page == attack.work.undamaged(attack.state, lambda: works.reported(attack.folder), "report")[1]:
        return RIGHT
    return attack.other("report", ended.warned, ended.err[-300:])


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


def attacks(few: bool = False) -> Callable[[Random], str]:
    """An attack on a folder; the works, or a `few`, are made in the current folder."""
    made = works.works(few)

    def one(draw: Random) -> str:
        work = draw.choices(made, [10, 10, 10, 10, 3, 3][: len(made)])[0]
        doors = {resumed: 8, loaded: 3, reported: 3, verified: 4}
        if work.kind == "run":
            doors |= {exported: 3, restored: 3}
        return draw.choices(list(doors), list(doors.values()))[0](Attack(work, draw))

    return one
