"""Tables, figures and folders of a comparison made by hand: no run, no compilation."""

import csv
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl.engine.provenance import provenance
from jdfl.engine.result import Results
from jdfl.lab import folder, table
from jdfl.lab.table import Cell, Grid
from jdfl.lab.tuning import Tuned
from jdfl.privacy import NO_NOISE

LABELS = ("d_psgd & co", "50% {noise}", "a|b <i>")


def finished(value: float, ending: str) -> jdfl.Result:
    """A run that nobody made, which ended at a value."""
    one = np.ones(1, int)
    return jdfl.Result(
        algorithm=jdfl.DPSGD(),
        problem_name="a_problem",
        network_name="ring",
        params=np.full((1, 2), value),  # pyright: ignore[reportArgumentType]
        state=None,
        history=pd.DataFrame({"round": [0, 5, 10], "objective": [10.0, 5.0 + value / 2, value]}),
        rounds=10,
        ending=ending,  # pyright: ignore[reportArgumentType]
        reason="",
        diverged=None,
        totals=jdfl.Totals({"model": 3}, {"model": 64}, 10, 10, 10, 0),
        communication_rounds=10 * one,
        releases=0 * one,
        clock=None,
        published_bytes=None,
        guarantee=NO_NOISE,
        records=one,
        privacy_warnings=(),
        key=(0, 1),
        sums={"grads": 10},
        seconds=1.0,
        compile_seconds=1.0,
        provenance=provenance(value=value),
    )


def made(values: dict[str, list[float]], *, endings: dict[str, str] | None = None, **more: Any) -> jdfl.Comparison:
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
    runs = {label: [finished(i, (endings or {}).get(label, "steps")) for i in last] for label, last in values.items()}
    tuning = pd.DataFrame({"label": [LABELS[1]], "lr": [0.1], "mean": [np.inf], "chosen": [True], "edge": [""]})
    return jdfl.Comparison(
        results=runs,  # pyright: ignore[reportArgumentType]
        tuning=tuning,
        curves=pd.concat(frames, ignore_index=True),
        algorithms=more.get("algorithms", {}),
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
    found = pd.DataFrame({"accuracy": [0.5, 0.9], "accuracy_ci": [0.1, 0.1], "seeds": [2, 2]}, index=["a", "b"])
    values = pd.DataFrame({"a": [0.5, 0.5], "b": [0.9, 0.9]})
    assert [cell.mark for cell in table.column(found, "accuracy", values)] == ["", "best"]


def test_markdown_and_latex_are_tables_of_equal_rows_and_escape_everything(three):
    text = three.table("markdown")
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in text.splitlines() if row.startswith("|")]
    assert [len(row) for row in cells] == [4] * (2 + len(LABELS))
    assert "_1.20 ± 0.50_" in text
    assert r"a\|b \<i\>" in text
    assert "not tuned" in cells[2][1]
    text = three.table("latex")
    body = text.split(r"\hline")[2].strip().splitlines()
    assert [line.count("&") - line.count(r"\&") for line in body] == [3, 3, 3]
    for sign in ("d\\_psgd \\& co", "50\\% \\{noise\\}", "$<$i$>$", r"\underline{1.20 $\pm$ 0.50}", r"\underline{1.3"):
        assert sign in text
    bare = re.sub(r"\\[&%$#_{}\\]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not re.search(r"[^\x00-\x7f]", text)


def test_numbers_have_no_digits_beyond_their_uncertainty():
    grid = Grid(["a"], [[Cell(table.number(1.5e-7))]], [])
    assert r"1.500$\cdot10^{-7}$" in table.write(grid, "latex")
    assert [table.number(x) for x in (0.0, 0.0123456, 12345.6, np.nan)] == ["0", "0.01235", "12,346", "–"]
    for mean, half, text in (
        *((9.12345, 0.1334, "9.12 ± 0.13"), (11233.3, 400.88, "11,230 ± 400"), (11233.3, 99.6, "11,233 ± 100")),
        *((1.5e-7, 2.3e-9, "(1.500 ± 0.023)e-07"), (11233.3, 9.96, "11,233.3 ± 10.0"), (0.5, np.nan, "0.5")),
        *((1e12, 1e9, "(1.0000 ± 0.0010)e+12"), (0.0, 0.1, "0.00 ± 0.10"), (0.5, 0.0, "0.5 (same in all runs)")),
    ):
        assert table.rounded(mean, half) == text


def test_models_of_nodes_are_not_ranked_with_one_model_for_all():
    methods = {"one": jdfl.DPSGD(), "own": jdfl.LocalOnly(), "worse": jdfl.CHOCO(codec=jdfl.Dense(), gamma=1.0)}
    found = made({"one": [1.0, 1.1, 0.9], "own": [-1.0, -1.1, -0.9], "worse": [3.0, 3.1, 2.9]}, algorithms=methods)
    assert "A model per node: own." in found.table()
    assert [row[-1].mark for row in found.grid().rows] == ["best", "", ""]
    assert [row[0].text for row in found.grid().rows] == ["one", "own", "worse, dense"]  # what it exists not to send
    assert found.differences()["verdict"].to_dict() == {"worse": "worse", "own": "not comparable"}
    assert set(found.differences(reference="own")["verdict"]) == {"not comparable"}
    (axis,) = found.plot(x="round")[0].axes
    assert min(float(np.min(np.asarray(line.get_ydata(), float))) for line in axis.lines) == pytest.approx(-1.0)
    alone = made({"own": [-1.0, -1.1, -0.9]}, algorithms={"own": jdfl.LocalOnly()})
    assert "A model per node" not in " ".join(alone.table().split())


def test_diverged_seeds_are_said_and_never_best():
    found = made({LABELS[0]: [3.0, 3.2], LABELS[1]: [0.1, 0.2]}, endings={LABELS[1]: "diverged"})
    cells = [row[-1] for row in found.grid().rows]
    assert cells == [Cell("3.1 ± 1.3", "best"), Cell("diverged")]
    some = pd.DataFrame({"objective": [1.0], "objective_ci": [0.1], "seeds": [3]}, index=["a"])
    values = pd.DataFrame({"a": [0.9, 1.0, 1.1, np.nan, np.nan]})
    assert table.column(some, "objective", values) == [Cell("1.00 ± 0.10 (2 of 5 diverged)")]


def test_figures_have_a_panel_per_amount_and_marks_that_can_be_left_out(three):
    fig, axes = three.plot(["round", "bytes"])
    assert [axis.get_xlabel().split("\n")[0] for axis in axes] == ["rounds", "bytes sent by all nodes"]
    (legend,) = fig.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[0] == LABELS[0]
    assert axes[0].get_xlabel().split("\n")[1] == f"{LABELS[0]}: not tuned"
    assert len(texts) == 4  # and what the band is
    fig, _ = three.plot("bytes", marks=False)
    assert [text.get_text() for text in fig.legends[0].get_texts()][:3] == list(LABELS)
    drawn = fig, axis = three.plot(width=2.5)
    assert (fig.get_figwidth(), fig._repr_png_()[:4], drawn._repr_png_()[:4]) == (2.5, b"\x89PNG", b"\x89PNG")
    line = axis.lines[1]
    np.testing.assert_allclose(line.get_ydata(), [10.0, 5.6, 1.2])


def test_what_python_shows_is_short(three):
    many = made({f"method {i}": [1.0, 2.0 + i] for i in range(30)})
    runs = Results([finished(float(i), "steps") for i in range(30)])
    for one in (
        three,
        many,
        three.at("bytes"),
        many.at("bytes"),
        Results(runs[:3]),
        runs,
        many.table(),
        three.table("latex"),
    ):
        assert len(repr(one).splitlines()) <= 12
        assert "\\n" not in repr(one)
        if hasattr(one, "_repr_html_"):
            assert one._repr_html_().count("<tr") + one._repr_html_().count("<div>") <= 13
    assert "a|b &lt;i&gt;" in three._repr_html_()
    found = many.at("bytes")
    assert repr(found).splitlines()[0].split() == ["algorithm", "objective", "±", "95", "%", "CI"]  # what differs
    assert {"budget", "bytes", "objective_sd"} < set(found.columns)
    assert type(found.T) is pd.DataFrame
    assert str(many.table()).count("\n") > 30
    assert repr(Results()) == "[]"


def test_a_folder_is_whole(undrawn, tmp_path, monkeypatch):
    two = made({LABELS[0]: [3.0, 3.2], LABELS[1]: [1.0, 1.4]})
    place = two.save(tmp_path / "deep" / "one", config_yaml="steps: 3\n")
    assert sorted(path.name for path in place.iterdir()) == sorted([*folder.FILES, "config.yaml"])
    curves = pd.read_parquet(place / "curves.parquet")
    pd.testing.assert_frame_equal(curves.drop(columns="mark"), two.curves)
    assert curves["mark"].tolist() == [two.mark(label) for label in two.curves["label"]]
    assert len(pd.read_csv(place / "curves.csv")) == len(two.curves)
    with (place / "tuning.csv").open() as file:
        assert next(csv.DictReader(file))["lr"] == "0.1"
    page = (place / "report.html").read_text()
    assert "no guarantee is claimed: no noise is added" in page
    assert 'src="http' not in page
    equal = pd.read_csv(place / "equal_costs.csv", index_col=["x", "label"])
    assert equal.loc["bytes", "objective"].tolist() == pytest.approx(two.at("bytes")["objective"].tolist())
    assert (place / "table.md").read_text() == two.table("markdown")
    with pytest.raises(FileExistsError):
        two.save(place)

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jdfl.Comparison, "plot", fail)
    with pytest.raises(KeyboardInterrupt):
        two.save(tmp_path / "other")
    monkeypatch.undo()
    two.save(place, overwrite=True)
    assert not (place / "config.yaml").exists()
    assert [path.name for path in tmp_path.rglob("*") if path.is_dir()] == ["deep", "one"]
