"""All experiments by one command, and the page that shows them."""

import json
import re
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from matplotlib.figure import Figure

from experiments import __main__ as command
from experiments import common, gallery


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

    def run(words, stdout, **_):
        name, out = words[2].removeprefix("experiments."), Path(words[words.index("--out") + 1])
        called.append(words)
        stdout.write(f"{name} says <so>\n")
        if name in failing:
            return CompletedProcess(words, 1)
        made(out, name)
        return CompletedProcess(words, 0)

    monkeypatch.setattr(command.subprocess, "run", run)
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
    assert "| m=32 \\| ring | 28 | 28.0 ± 1.4 |" in (tmp_path / "codecs.md").read_text()
    assert r"m=32 | ring & 28 & 28.0 $\pm$ 1.4 \\" in (tmp_path / "codecs.tex").read_text()
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
    for part in ("28.0 ± 1.4", "rounds, paper", "codecs says &lt;so&gt;", "<img "):
        assert part in section[0]
    assert "Not here yet: python -m experiments.demo" in text


@pytest.mark.slow
def test_one_that_fails_is_told_and_does_not_stop_the_others(scripts, tmp_path, capsys):
    called, failing = scripts
    failing.add("codecs")
    assert command.main(["all", "--processes", "1", "--out", str(tmp_path)]) == 1
    assert len(called) == len(gallery.experiments())
    assert "failed: codecs" in capsys.readouterr().out
    assert json.loads((tmp_path / "codecs.run.json").read_text())["status"] == 1
    assert "ended with status 1" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_the_longest_of_the_last_time_goes_first(scripts, tmp_path):
    called, _ = scripts
    for name, seconds in (("codecs", 5.0), ("demo", 9.0)):
        (tmp_path / f"{name}.run.json").write_text(json.dumps({"seconds": seconds}))
    command.main(["codecs", "demo", "unreliable", "--processes", "1", "--out", str(tmp_path)])
    assert [words[2].removeprefix("experiments.") for words in called] == ["unreliable", "demo", "codecs"]


@pytest.mark.parametrize("arguments", [["nonsense"], ["codecs", "--processes", "0"], []])
def test_mistakes_are_told_before_anything_runs(arguments, scripts, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main([*arguments, "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err
    assert scripts[0] == []
