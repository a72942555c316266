"""All experiments by one command, and the page that shows them."""

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from experiments import __main__ as command
from experiments import common
from tests.counting import note


def made(out: Path, name: str) -> None:
    """What a script leaves."""
    out.mkdir(exist_ok=True)
    common.save([common.row("m=32 | ring", "rounds", 28, [27, 29])], out, name)
    fig = Figure()
    fig.subplots().plot([1, 2])
    common.save_figure(fig, out / f"{name}.png")


def test_what_is_done_is_not_done_again_and_the_page_shows_it_beside_the_paper(tmp_path, monkeypatch, capsys):
    called, failing = list[str](), {"demo"}

    def begun(words, stdout, **_):
        name = words[4].removeprefix("experiments.")  # after what makes it mortal
        called.append(name)
        stdout.write(f"{name} says <so>\n")
        if name not in failing:
            made(Path(words[words.index("--out") + 1]), name)
        return name, int(name in failing)

    monkeypatch.setattr(command.subprocess, "Popen", begun)
    monkeypatch.setattr(command, "ended", lambda process: (process[1], 1.5))
    two = ["codecs", "demo", "codecs", "--quick", "--out", str(tmp_path)]
    assert command.main(two) == 1
    assert sorted(called) == ["codecs", "demo"]
    assert "failed: demo" in capsys.readouterr().out
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    section = next(part for part in text.split("<section ") if "experiments.codecs" in part)
    said = "python -m experiments.codecs --quick", "28 ± 13", "rounds, paper", "codecs says &lt;so&gt;", "<img "
    assert [part for part in said if part not in section] == []
    assert "ended with status 1" in text
    (tmp_path / "codecs.json").unlink()
    failing.clear()
    assert command.main(two) == 0
    assert called[2:] == ["demo"]
    assert (tmp_path / "codecs.json").is_file()
    assert command.main([*two, "--again"]) == 0
    assert len(called) == 5


NAMES = os.environ.get("JDFL_EXPERIMENTS", "lemma2_counterexample gpsp_quality").split()  # or all
KILLS = int(os.environ.get("JDFL_KILLS", "6"))
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGINT)
MEASURED = {"seconds", "compute, s", "both, s", "both / SGP"}  # columns of times, which no two runs share


def _begun(out: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-W", "ignore", "-m", "experiments", *NAMES, "--quick", "--out", str(out)]

    def usual() -> None:  # also where this process is one that ignores them
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=usual)


def _made(out: Path) -> dict[str, object]:
    """All files by name; tables, and the page if no table has measured times, with their content."""
    tables = {
        path.name: json.loads(path.read_text(encoding="utf-8"))
        for path in out.glob("*.json")
        if path.name.count(".") == 1 and path.name != "jobs.json"
    }
    kept = {name: [row for row in rows if row["column"] not in MEASURED] for name, rows in tables.items()}
    text = (out / "index.html").read_text(encoding="utf-8")
    page = re.sub(r", \d+ s, provenance", "", text).replace(str(out), "OUT") if kept == tables else None
    return dict.fromkeys(path.name for path in out.iterdir()) | kept | {"index.html": page}


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.filterwarnings("ignore:.*preexec_fn:DeprecationWarning", "ignore:os.fork:RuntimeWarning")
def test_all_of_them_killed_at_random_give_the_same_page(tmp_path):
    """For all experiments JDFL_EXPERIMENTS=all JDFL_KILLS=20, an hour."""
    assert _begun(tmp_path / "whole").wait() == 0
    draw, out, kills = random.Random(KILLS), tmp_path / "killed", 0
    while kills < KILLS:
        process = _begun(out)
        try:
            assert process.wait(timeout=draw.uniform(1, 8 if len(NAMES) > 1 else 100)) == 0
            break
        except subprocess.TimeoutExpired:
            process.send_signal(SIGNALS[kills % len(SIGNALS)])
            assert process.wait() in (-signal.SIGKILL, -signal.SIGINT, -signal.SIGHUP, -signal.SIGTERM, 130, 143)
            kills += 1
    assert _begun(out).wait() == 0
    whole, made = _made(tmp_path / "whole"), _made(out)
    wrong = [name for name in {**whole, **made} if whole.get(name) != made.get(name)]
    wrong += [str(path) for path in out.glob("jobs/.*")]
    note("kills of python -m experiments --quick", ", ".join(NAMES), kills, wrong)
    assert not wrong
    assert kills >= 2
    running = subprocess.run(["pgrep", "-f", str(out)], capture_output=True, check=False).stdout
    assert not running
