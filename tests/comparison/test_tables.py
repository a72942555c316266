"""Tables, figures and folders of a comparison made by hand: no run, no compilation."""

import csv
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import jdfl
from jdfl.engine.provenance import provenance
from jdfl.lab import folder, table
from jdfl.lab.table import Cell, Grid
from jdfl.lab.tuning import Tuned
from jdfl.privacy import NO_NOISE

LABELS = ("d_psgd & co", "50% {noise}", "a|b <i>")


def made(values: dict[str, list[float]], *, endings: dict[str, str] | None = None) -> jdfl.Comparison:
    """Seeds 0, 1, ... of every label, all with the same costs; the value falls from 10 to the one given."""
    frames = []
    for label, last in values.items():
        for seed, value in enumerate(last):
            columns = {"round": [0, 5, 10], "objective": [10.0, 5.0 + value / 2, value], "bytes": [0.0, 4e3, 8e6]}
            columns |= {name: [0.0, 1.0, 2.0] for name in ("communications", "gradients", "seconds")}
            ending = (endings or {}).get(label, "steps")
            frames.append(pd.DataFrame({"label": label, "seed": seed, "ending": ending, **columns}))
    tuned = {label: Tuned({"lr": 0.1}, {"lr": (0.05, 0.1, 0.2)}, 6, {}) for label in values}
    tuned[next(iter(values))] = Tuned({}, {}, 0, {})
    seeds = tuple(range(max(map(len, values.values()))))
    runs = {
        label: [
            SimpleNamespace(
                ending=(endings or {}).get(label, "steps"),
                provenance=provenance(str(i)),
                guarantee=NO_NOISE,
                totals=SimpleNamespace(releases=0),
            )
            for i in last
        ]
        for label, last in values.items()
    }
    tuning = pd.DataFrame({"label": [LABELS[1]], "lr": [0.1], "mean": [np.inf], "chosen": [True], "edge": [""]})
    return jdfl.Comparison(
        results=runs,  # pyright: ignore[reportArgumentType]
        tuning=tuning,
        curves=pd.concat(frames, ignore_index=True),
        algorithms={},
        tuned=tuned,
        measure="objective",
        by="round",
        seeds=seeds,
        tuning_seeds=(70, 71),
        criterion="lowest mean objective",
        networks=dict.fromkeys(values, "ring"),
        title="a_problem",
    )


@pytest.fixture
def three() -> jdfl.Comparison:
    return made({LABELS[0]: [3.0, 3.2, 3.1], LABELS[1]: [1.0, 1.4, 1.2], LABELS[2]: [1.3, 1.3, 1.3]})


def test_the_best_and_what_cannot_be_distinguished_from_it_are_marked(three):
    marks = [row[-1].mark for row in three.grid().rows]
    assert marks == ["", "tie", "tie"]
    texts = [row[-1].text for row in three.grid().rows]
    assert texts == ["3.10 ± 0.25", "1.20 ± 0.50", "1.3 (deterministic)"]  # 4.303 sd / sqrt 3
    clear = made({"a": [1.0, 1.4, 1.2], "b": [1.2, 1.6, 1.4]})  # paired: .2 in every trial, deviations of .2
    assert [row[-1].mark for row in clear.grid().rows] == ["best", ""]


def test_shares_of_what_is_right_are_better_high():
    found = pd.DataFrame({"accuracy": [0.5, 0.9], "accuracy_ci": [0.1, 0.1], "seeds": [2, 2]}, index=["a", "b"])
    values = pd.DataFrame({"a": [0.5, 0.5], "b": [0.9, 0.9]})
    assert [cell.mark for cell in table.column(found, "accuracy", values)] == ["", "best"]


def test_markdown_is_a_table_of_equal_rows(three):
    text = three.table("markdown")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in rows]
    assert len(rows) == 2 + len(LABELS)
    assert {len(row) for row in cells} == {4}
    assert re.fullmatch(r"( -+:? )+", "".join(cells[1]))
    assert "_1.20 ± 0.50_" in text
    assert r"a\|b \<i\>" in text
    assert "not tuned" in cells[2][1]


def test_latex_escapes_everything_and_balances(three):
    text = three.table("latex")
    body = text.split(r"\hline")
    assert [line.count("&") - line.count(r"\&") for line in body[2].strip().splitlines()] == [3, 3, 3]
    assert all(line.endswith(r"\\") for line in body[2].strip().splitlines())
    for sign in ("d\\_psgd \\& co", "50\\% \\{noise\\}", "$<$i$>$", r"\underline{1.20 $\pm$ 0.50}", r"\underline{1.3"):
        assert sign in text
    bare = re.sub(r"\\[&%$#_{}\\]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    for begin, end in (("begin{table}", "end{table}"), ("begin{tabular}", "end{tabular}")):
        assert text.count(begin) == text.count(end) == 1
    assert not re.search(r"[^\x00-\x7f]", text)


@pytest.mark.parametrize("format", ["text", "markdown", "latex"])
def test_captions_say_what_decides(three, format):
    text = three.table(format).replace("\\", "")
    for words in ("3 trials", "0.05 ... 0.2 (3 values)", "6 tuning runs", "not tuned", "a_problem over ring"):
        assert words in text, words


def test_powers_of_ten_and_plain_numbers():
    grid = Grid(["a"], [[Cell(table.number(1.5e-7))]], [])
    assert r"1.500$\cdot10^{-7}$" in table.write(grid, "latex")
    assert [table.number(x) for x in (0.0, 0.0123456, 12345.6, np.nan)] == ["0", "0.01235", "12,346", "–"]
    assert [table.spread(11233.3, x) for x in (400.88, 99.6, 9.96, 0.0)] == [
        "11,233 ± 401", "11,233 ± 100", "11,233 ± 10", "11,233 (same in all runs)"
    ]  # fmt: skip


def test_diverged_seeds_are_said_and_never_best():
    found = made({LABELS[0]: [3.0, 3.2], LABELS[1]: [0.1, 0.2]}, endings={LABELS[1]: "diverged"})
    cells = [row[-1] for row in found.grid().rows]
    assert cells == [Cell("3.1 ± 1.3", "best"), Cell("diverged")]
    some = pd.DataFrame({"objective": [1.0], "objective_ci": [0.1], "seeds": [3]}, index=["a"])
    values = pd.DataFrame({"a": [0.9, 1.0, 1.1, np.nan, np.nan]})
    assert table.column(some, "objective", values) == [Cell("1.00 ± 0.10 (2 of 5 diverged)")]


def test_other_amounts_budgets_and_metrics(three):
    assert three.grid(by="bytes").headers == ["algorithm", "values", "rounds", "bytes", "objective"]
    assert [row[2].text for row in three.grid(by="bytes", value=5e3).rows] == ["5", "5", "5"]
    assert "4,000" not in three.table()
    assert three.at("bytes", 5e3)["bytes"].tolist() == [4e3] * 3


def test_figures_have_a_panel_per_amount(three, tmp_path, monkeypatch):
    from jdfl.lab import drawing

    shown = {}
    monkeypatch.setattr(
        drawing, "bands", lambda panels, legend, y, path, provenance: shown.update(panels=panels, legend=legend)
    )
    three.figure(tmp_path / "a.png", x=("round", "bytes"))
    assert list(shown["panels"]) == ["rounds", "bytes sent by all nodes"]
    frame = shown["panels"]["rounds"]
    last = frame[(frame["label"] == LABELS[1]) & (frame["round"] == 10)].iloc[0]
    half = stats.t.ppf(0.975, 2) * 0.2 / np.sqrt(3)
    np.testing.assert_allclose([last["low"], last["high"]], [1.2 - half, 1.2 + half])
    assert shown["legend"][LABELS[0]].endswith("(not tuned)")


def test_who_spends_nothing_has_a_line_beside_the_others(tmp_path):
    from jdfl.lab import drawing

    frame = pd.DataFrame({"label": ["a", "a", "b", "b"], "x": [0.0, 0.0, 1.0, 1e4], "mean": [2.0, 1.0, 2.0, 0.5]})
    frame = frame.assign(low=frame["mean"], high=frame["mean"])
    drawn = drawing.bands({"bytes": frame}, {"a": "silent", "b": "talks"}, "objective", tmp_path / "a.png")
    alone = drawing.bands({"bytes": frame[2:]}, {"a": "silent", "b": "talks"}, "objective", tmp_path / "b.png")
    assert drawn.read_bytes() != alone.read_bytes()
    with pytest.raises(ValueError, match="panel"):
        drawing.bands({}, {}, "objective", tmp_path / "c.png")


def test_a_folder_is_whole(three, tmp_path):
    three = made({LABELS[0]: [3.0, 3.2], LABELS[1]: [1.0, 1.4]})
    place = three.write(tmp_path / "deep" / "one", "steps: 3\n")
    assert sorted(path.name for path in place.iterdir()) == sorted([*folder.FILES, "config.yaml"])
    curves = pd.read_parquet(place / "curves.parquet")
    pd.testing.assert_frame_equal(curves.drop(columns="mark"), three.curves)
    assert curves["mark"].tolist() == [three.mark(label) for label in three.curves["label"]]
    assert len(pd.read_csv(place / "curves.csv")) == len(three.curves)
    with (place / "tuning.csv").open() as file:
        assert next(csv.DictReader(file))["lr"] == "0.1"
    page = (place / "report.html").read_text()
    assert page.count('data-kind="curves"') == 1
    assert "50% {noise}" in page
    assert "no guarantee is claimed: no noise is added" in page
    assert 'src="http' not in page
    for what in ("bytes", "gradient"):
        assert f"At equal {what}" in page
    equal = pd.read_csv(place / "equal_costs.csv", index_col=["x", "label"])
    assert equal.loc["bytes", "objective"].tolist() == pytest.approx(three.at("bytes")["objective"].tolist())
    assert (place / "table.md").read_text() == three.table("markdown")
    with pytest.raises(FileExistsError, match="one"):
        three.write(place)
    three.write(place, overwrite=True)
    assert not (place / "config.yaml").exists()
    assert [path.name for path in place.parent.iterdir()] == ["one"]


def test_a_failure_leaves_no_folder(three, tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jdfl.Comparison, "figure", fail)
    with pytest.raises(KeyboardInterrupt):
        three.write(tmp_path / "one")
    assert list(tmp_path.iterdir()) == []
