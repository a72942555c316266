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
from experiments import common, gallery
from tests.counting import note


def made(out: Path, name: str) -> None:
    """What a script leaves."""
    out.mkdir(exist_ok=True)
    common.save([common.row("m=32 | ring", "rounds", 28, [27, 29])], out, name)
    fig = Figure()
    fig.subplots().plot([1, 2])
    common.save_figure(fig, out / f"{name}.png")


@pytest.fixture
def scripts(monkeypatch):
    """Processes that are not started: names that fail, and commands that were called."""
    called: list[list[str]] = []
    failing: set[str] = set()

    class Process:
        def __init__(self, command, stdout, **_):
            words = command[2:]  # after what makes it mortal
            name, out = words[2].removeprefix("experiments."), Path(words[words.index("--out") + 1])
            called.append(words)
            stdout.write(f"{name} says <so> of {out}\n")
            self.status = 1 if name in failing else 0
            if not self.status:
                made(out, name)

        def wait(self):
            return self.status

    monkeypatch.setattr(command.subprocess, "Popen", Process)
    monkeypatch.setattr(command, "ended", lambda process: (process.wait(), 1.5))
    return called, failing


def test_every_script_with_a_table_is_known_and_says_what_it_is():
    known = {one.name: one for one in gallery.experiments()}
    assert {"ceps_table3", "partpsp_table2", "theorem1_counterexample", "demo", "theory_constants"} <= known.keys()
    assert not {"common", "gallery", "__main__", "ceps_baselines"} & known.keys()
    assert all(len(one.title) > 20 and not one.title.endswith(".") for one in known.values())
    assert [gallery.paper_of(name) for name in ("ceps_table3", "dpps_consensus", "doadp_sound", "codecs")] == [
        0,
        1,
        2,
        3,
    ]


def test_a_table_and_a_figure_are_written_for_papers_too(tmp_path):
    made(tmp_path, "codecs")
    assert "| m=32 \\| ring | 28 | 28 ± 13 |" in (tmp_path / "codecs.md").read_text()
    assert r"m=32 | ring & 28 & 28 $\pm$ 13 \\" in (tmp_path / "codecs.tex").read_text()
    assert (tmp_path / "codecs.pdf").read_bytes().startswith(b"%PDF")


def test_named_ones_run_and_the_page_shows_them_beside_the_paper(scripts, tmp_path, capsys):
    called, _ = scripts
    assert command.main(["codecs", "ceps_table3", "codecs", "--quick", "--seeds", "1", "--out", str(tmp_path)]) == 0
    assert sorted(words[2] for words in called) == ["experiments.ceps_table3", "experiments.codecs"]
    assert all(words[3:6] == ["--quick", "--seeds", "1"] for words in called)
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "index.html" in capsys.readouterr().out
    section = re.search(r'<section id="codecs">.*?</section>', text, re.DOTALL)
    assert section
    assert "python -m experiments.codecs --quick --seeds 1" in section[0]
    for part in ("28 ± 13", "rounds, paper", f"codecs says &lt;so&gt; of {tmp_path}\n", "<img "):
        assert part in section[0]
    assert "Not here yet: python -m experiments.demo" in text


@pytest.mark.slow
def test_one_that_fails_is_told_and_does_not_stop_the_others(scripts, tmp_path, capsys):
    called, failing = scripts
    failing.add("codecs")
    assert command.main(["all", "--processes", "1", "--out", str(tmp_path)]) == 1
    assert len(called) == len(gallery.experiments()) - len(command.NIGHTS)
    assert "failed: codecs" in capsys.readouterr().out
    assert json.loads((tmp_path / "codecs.run.json").read_text())["status"] == 1
    assert "ended with status 1" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_the_longest_of_the_last_time_goes_first(scripts, tmp_path):
    called, _ = scripts
    for name, seconds, processor in (("codecs", 9.0, 5.0), ("demo", 7.0, 9.0)):
        said = {"command": f"python -m experiments.{name}", "seconds": seconds, "processor": processor}
        (tmp_path / f"{name}.run.json").write_text(json.dumps(said))
    command.main(["codecs", "demo", "unreliable", "--processes", "1", "--out", str(tmp_path)])
    assert [words[2].removeprefix("experiments.") for words in called] == ["unreliable", "demo", "codecs"]


def test_what_is_done_is_not_done_again_unless_it_is_asked_for(scripts, tmp_path, capsys):
    called, failing = scripts
    failing.add("demo")
    two = ["codecs", "demo", "--out", str(tmp_path)]
    assert command.main(two) == 1
    (tmp_path / "codecs.json").unlink()
    failing.clear()
    called.clear()
    assert command.main(two) == 0
    assert [words[2] for words in called] == ["experiments.demo"]
    assert (tmp_path / "codecs.json").is_file()
    assert re.search(r"codecs +\d s, before", capsys.readouterr().out)  # a second, on a busy machine
    for more, count in ((["--quick"], 2), (["--again"], 2), ([], 0)):
        called.clear()
        assert command.main([*two, *more]) == 0
        assert len(called) == count


def test_one_that_fails_is_tried_again(scripts, tmp_path):
    called, failing = scripts
    failing.add("codecs")
    with pytest.warns(UserWarning, match="tried again, 2 of 2"), pytest.warns(UserWarning, match="1 of 2"):
        assert command.main(["codecs", "--retry", "2", "--out", str(tmp_path)]) == 1
    assert len(called) == 3
    assert not list(tmp_path.glob("jobs/*"))


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
@pytest.mark.filterwarnings("ignore:.*preexec_fn:DeprecationWarning")
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


@pytest.mark.parametrize("arguments", [["nonsense"], ["codecs", "--processes", "0"], ["codecs", "--retry", "-1"], []])
def test_mistakes_are_told_before_anything_runs(arguments, scripts, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main([*arguments, "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err
    assert scripts[0] == []


def test_how_long_all_will_take_is_known_but_for_what_was_not_timed(tmp_path):
    every = gallery.experiments()
    known = {one.name: command.took(one, [], tmp_path) for one in every}
    assert all(isinstance(seconds, float | int) for seconds in known.values())  # they are sorted by it
    assert command.expected([600, 300, 240, 60], 2, 2) == "expected: 10 min"
    assert command.expected([600, 600, 600, 600], 4, 2) == "expected: 20 min"  # as two cores take it
    assert command.expected([float("inf"), 120, 60], 1, 2) == "expected: 3 min, and 1 of unknown length"
    assert command.expected([float("inf")], 1, 2) == "expected: 0 min, and 1 of unknown length"


def test_a_run_with_other_flags_does_not_tell_how_long_one_takes(tmp_path):
    (codecs,) = [one for one in gallery.experiments() if one.name == "codecs"]
    said = {"command": "python -m experiments.codecs --seeds 1", "status": 0, "seconds": 9.0, "processor": 4.0}
    (tmp_path / "codecs.run.json").write_text(json.dumps(said))
    assert command.took(codecs, ["--seeds", "1"], tmp_path) == 4
    assert command.took(codecs, ["--seeds", "7"], tmp_path) == float("inf")


def test_processor_seconds_are_those_of_the_process():
    spin = "import sys, time\nwhile time.process_time() < 0.4: pass\nsys.exit(3)"
    status, seconds = command.ended(subprocess.Popen([sys.executable, "-c", spin]))
    assert status == 3
    assert seconds is None or 0.4 <= seconds < 20
    idle = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    idle.kill()
    assert command.ended(idle)[0] == -signal.SIGKILL
