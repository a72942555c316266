"""One ledger per data set: what runs may release is written down before they begin, once for the same noise."""

import contextlib
import json
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest

import jdfl
from jdfl.base.run_keys import RunKey
from jdfl.cli import main
from jdfl.engine import data_ledger, ledger_file
from jdfl.engine.accountant import ledger_of_run
from jdfl.engine.data_ledger import Intent
from jdfl.privacy import GaussianEvent, LaplaceEvent, Sampling
from jdfl.privacy.together import total_epsilon
from tests.privacy.scene import DRAWN, NETWORK, NOISY, run
from tests.privacy.test_ledger_report import CLAIMED
from tests.refused import each_refused, refused

DELTA = 1e-6
LOUDER = replace(NOISY, gradients=replace(NOISY.gradients, mechanism=jdfl.Gaussian(8.0)))


@pytest.fixture
def book(tmp_path):
    return jdfl.DataLedger.create(tmp_path / "data.json", epsilon=4.0, delta=DELTA)


def intent(name="a", releases=3, *, z=5.0, terms="", data="data", token="1", **told):
    guarantee = replace(CLAIMED, **({"event": GaussianEvent(z)} | told))
    records = np.array([100, 200])
    return Intent(name, token, f"run {name}", data, guarantee, np.array([releases, 1]), records, 3, terms)


def ended(one, releases=None, *, whole=True, void="", outputs="1"):
    ledger = one.ledger if releases is None else replace(one.ledger, releases=np.array(releases))
    rounds = int(ledger.releases.max())
    return {one.key: data_ledger.Ended(ledger, whole, void, rounds, outputs)}


def charges(book):
    return [one.charge() for one in ledger_file.read(book.path).entries.values()]


def together(*runs):
    return total_epsilon([ledger_of_run(one) for one in runs], DELTA)


def test_the_ledger_costs_what_its_runs_cost_together(book):
    runs = [run(ledger=book), run(LOUDER, ledger=book), run(ledger=book, key=1, steps=4)]
    how = {"steps": 1, "metrics": [], "ledger": book}
    runs += jdfl.sweep(NOISY, DRAWN(), NETWORK(), over={"lr": [0.1, 0.2]}, **how)
    runs += jdfl.repeat(NOISY, DRAWN(), NETWORK(), keys=[7], **how)
    found = book.standing()
    assert (found.runs, found.open, found.epsilon) == (6, 0, together(*runs))
    assert runs[-1].standing == found
    assert runs[0].standing.epsilon == together(runs[0]) < found.epsilon
    assert found.as_dict()["epsilon"] == found.epsilon
    assert "6 runs" in found.statement()
    assert len(book.lines()) == 6


def test_a_run_goes_on_in_its_own_entry_and_another_with_its_key_is_refused(book):
    first = run(ledger=book, key=3)
    longer = run(ledger=book, key=3, steps=4, resume=first)
    assert (longer.standing.runs, longer.standing.epsilon) == (1, together(longer))
    before = book.path.read_bytes()
    for algorithm, steps in ((NOISY, 4), (LOUDER, 2)):
        with refused("private key", str(book.path)):
            run(algorithm, ledger=book, key=3, steps=steps)
    with refused("private key", str(book.path)):
        jdfl.repeat(NOISY, DRAWN(), NETWORK(), keys=[4, 3], steps=1, ledger=book, metrics=[])
    assert book.path.read_bytes() == before
    assert run(ledger=book).standing.runs == 2


def test_a_run_that_has_released_other_things_than_before_has_no_epsilon(book):
    """Two processes resume one checkpoint, and something outside of what is computed differs."""
    one = intent()
    book.reserve([one]).end(ended(one, outputs="1"))
    book.reserve([one]).end(ended(one, outputs="1"))
    assert np.isfinite(book.standing().epsilon)
    book.reserve([one]).end(ended(one, outputs="2"))
    assert book.standing().epsilon == np.inf
    with refused(str(book.path), "run a"):
        book.reserve([intent("b")])


def test_noise_of_several_kinds_adds_up_as_it_does_elsewhere(book):
    runs = [intent(), intent("b", sampling=Sampling("subset", 5)), intent("c", event=LaplaceEvent(20.0))]
    for one in runs:
        book.reserve([one])
    assert book.standing().epsilon == total_epsilon([one.ledger for one in runs], DELTA)


class Killed(BaseException):
    pass


def test_a_run_that_was_killed_stays_reserved_until_it_is_made_again(book):
    def die(now):
        raise Killed

    key = RunKey.of(5)
    with pytest.raises(Killed):
        run(ledger=book, key=key, callbacks=[die], options=jdfl.Options(chunk=1))
    found = book.standing()
    assert (found.runs, found.open) == (1, 1)
    assert found.epsilon == together(run())
    with refused("private key"):
        run(ledger=book, key=5)
    done = run(ledger=book, key=key).standing
    assert (done.open, done.epsilon) == (0, found.epsilon)


def test_a_run_that_ends_early_is_lowered_to_what_it_released(book):
    limited = run(ledger=book, steps=50, callbacks=[jdfl.Budget(1.5, DELTA)])  # of which all 50 would not fit
    assert limited.ending == "budget"
    assert book.standing().epsilon == together(limited) <= 1.5
    cut = run(ledger=book, key=1, callbacks=[jdfl.Deadline(1e-6)], options=jdfl.Options(chunk=1))
    assert cut.ending == "time limit"
    assert (cut.standing.open, cut.standing.epsilon) == (0, together(limited, cut))


def test_what_ends_by_itself_frees_what_was_kept_for_the_same_run_and_nothing_else(book):
    one = intent(releases=9, terms="stop")
    book.reserve([one])  # killed
    book.reserve([one]).end(ended(one, [2, 1], whole=False))  # cut off, where the other may have gone on
    assert charges(book)[0].releases.tolist() == [9, 1]
    other = intent(releases=9, terms="another rule")
    book.reserve([other]).end(ended(other, [4, 1]))
    assert charges(book)[0].releases.tolist() == [9, 1]
    book.reserve([one]).end(ended(one, [3, 1]))
    assert charges(book)[0].releases.tolist() == [4, 1]
    assert book.standing().open == 0


def test_what_does_not_belong_to_the_others_is_refused_and_leaves_no_trace(book):
    book.reserve([intent()])
    before = book.path.read_bytes()
    for named, *runs in (
        ("data", intent("b", data="another split")),
        ("private key", intent(token="2")),
        ("add-remove", intent("b", adjacency="add-remove")),
        ("node", intent("b", unit="node")),
        ("Give clip", intent("b", claimed=False, enforced_by=None, reason="bare", remedy="Give clip.")),
        ("delta", intent("b")._replace(records=np.array([10**6, 10**6]))),
        ("epsilon = 4", intent("b"), intent("c", z=0.5)),  # a sweep is refused whole
    ):
        for door in (book.reserve, book.check):
            with refused(named, str(book.path)):
                door(runs)
    assert book.path.read_bytes() == before


def test_a_run_beyond_the_budget_is_told_how_many_rounds_fit(book):
    run(ledger=book)
    before = book.path.read_bytes()
    with refused("100 rounds") as error:
        run(ledger=book, steps=100, key=1)
    assert book.path.read_bytes() == before
    fit = int(str(error.value).split("About ")[1].split()[0])
    most = intent("b", releases=fit)._replace(data=ledger_file.read(book.path).data)
    assert 0 < fit == int(most.ledger.releases.max())
    assert total_epsilon([ledger_of_run(run()), most.ledger], DELTA) <= 4.0
    for rounds in (200_000, 2_000_000_000):
        one = most._replace(releases=np.array([rounds, 1], np.int32), rounds=rounds)
        with refused(f"{rounds} rounds", f"About {fit}"):
            book.check([one])


def test_runs_without_an_epsilon_are_refused_before_they_begin(book):
    for algorithm in (jdfl.DPSGD(), replace(NOISY, gradients=replace(NOISY.gradients, clip=None))):
        with refused("clip"):
            run(algorithm, ledger=book)
    with refused("stop"):
        run(ledger=book, stop=jdfl.objective_below(1e9))
    run(ledger=book)
    with refused("data", str(book.path)):
        run(NOISY, DRAWN().replace(data=(-DRAWN().data[0], DRAWN().data[1])), ledger=book)
    assert book.standing().runs == 1


def test_a_run_that_data_have_ended_takes_the_epsilon_of_all_away(book):
    found = run(ledger=book, callbacks=[lambda now: "enough"], options=jdfl.Options(chunk=1))
    assert found.standing.epsilon == np.inf
    assert "no finite epsilon" in book.standing().statement()
    with refused("stop rule"):
        run(ledger=book, key=1)


def test_comparisons_keep_room_for_tuning_and_reported_runs(book):
    def compared(**changes):
        tune = jdfl.Tuning(**({"keys": (5,), "extend": 0} | changes))
        entries = {"noisy": jdfl.Entry(NOISY, tune={"lr": [0.01, 0.02]})}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return jdfl.compare(
                entries, problem, NETWORK(), trials=[0], steps=1, budget={"round": None}, tuning=tune, ledger=book
            )

    problem = DRAWN()
    with refused("tuning"):
        compared()
    problem = problem.declared("tuning")
    with refused(extend=2):
        compared(extend=2)
    kept, record = [], data_ledger.DataLedger.reserve

    def reserve(self, runs, **how):
        hold = record(self, runs, **how)
        kept.append(self.standing())
        return hold

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_ledger.DataLedger, "reserve", reserve)
        found = compared()
    assert kept[0].runs == 2 + 1  # of tuning, and one that will be reported
    assert all(one.epsilon <= kept[0].epsilon for one in kept)
    assert (found.standing.runs, found.standing.open) == (3, 0)
    assert found.standing.epsilon == together(*[found.results["noisy"][0]] * 3)
    assert found.standing.statement() in found.table()
    assert (set(found.privacy), found.together.silent) == ({"noisy"}, 0)
    book = jdfl.DataLedger.create(book.path.with_name("small.json"), epsilon=1.4, delta=DELTA)  # two runs fit
    before = book.path.read_bytes()
    with refused("3 runs"):
        compared()
    assert book.path.read_bytes() == before


def test_files_that_are_no_whole_ledger_are_refused(tmp_path, book):
    none = tmp_path / "none.json"
    with refused(FileExistsError, str(book.path)):
        jdfl.DataLedger.create(book.path, epsilon=5.0, delta=DELTA)
    with refused(FileNotFoundError, str(none)):
        jdfl.DataLedger(none)
    with refused(FileNotFoundError, "folder"):
        jdfl.DataLedger.create(tmp_path / "none" / "a.json", epsilon=5.0, delta=DELTA)
    paths = [{"path": path} for path in ([], 3, None, "", {})]
    each_refused(jdfl.DataLedger.create, *paths, {"epsilon": 0.0}, {"delta": 1.0}, path=none, epsilon=1.0, delta=DELTA)
    each_refused(jdfl.DataLedger, *paths)
    book.reserve([intent()])
    text = book.path.read_text()
    edited = [text.replace('"epsilon": 4.0', '"epsilon": 9.0'), text.replace("[3, 1]", "[2, 1]")]
    edited += [text.replace('"version": 2', '"version": 1')]
    assert text not in edited
    for damaged in (text[:-9], "", "[1]", "{}", *edited):
        book.path.write_text(damaged)
        with refused(str(book.path)):
            book.reserve([intent("b")])
        assert book.path.read_text() == damaged
    book.path.write_text(text)
    assert book.standing().runs == 1
    assert all(one.suffix in (".json", ".lock") for one in tmp_path.iterdir())  # nothing half written is left


def test_several_at_once_do_not_share_the_last_of_the_budget(tmp_path):
    least = [total_epsilon([intent(releases=12).ledger] * count, DELTA) for count in (1, 2)]
    room = jdfl.DataLedger.create(tmp_path / "room.json", epsilon=(least[0] + least[1]) / 2, delta=DELTA)
    at_once, inside = threading.Barrier(6), []

    def enter(name):
        at_once.wait()
        with contextlib.suppress(ValueError):
            room.reserve([intent(name, releases=12)])
            inside.append(name)

    every = [threading.Thread(target=enter, args=(str(i),)) for i in range(6)]
    for one in every:
        one.start()
    for one in every:
        one.join()
    assert len(inside) == 1
    assert room.standing().epsilon == least[0]


@pytest.mark.slow
def test_run_sweep_and_compare_of_the_command_line_join_one_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    problem = "--problem.m 4 --problem.n 12 --problem.s 2 --problem.rows 8 12 --network ring --stop none"
    flags = f"{problem} --algorithm d-psgd --algorithm.mechanism gaussian --algorithm.clip 1 --steps 2"
    flags += " --algorithm.mechanism.multiplier 20 --privacy.ledger data.json"

    def told(line, status=0):
        assert main(line.split()) == status
        found = capsys.readouterr()
        return json.loads(found.out) if line.endswith("--json") and not status else found.out + found.err

    def of_file():
        return told("account --ledger data.json --json")

    assert "none" in told(f"run {flags}", status=2)
    assert told("account --new-ledger data.json --epsilon 1 --delta 1e-6")
    assert told("account --new-ledger data.json --epsilon 9", status=2)
    plan = told(f"account {flags} --json")["data_ledger"]
    runs = told(f"run {flags} --repeats 2 --json")
    assert [one["privacy"]["data_ledger"]["runs"] for one in runs] == [2, 2]
    assert runs[1]["privacy"]["data_ledger"] == of_file()
    assert (plan["runs"], plan["with_this_run"] < of_file()["epsilon"]) == (0, True)
    folder = runs[0]["folder"]
    assert told(f"resume {folder} --steps 3 --privacy.ledger other.json", status=2)
    assert told(f"resume {folder} --steps 3 --json")["privacy"]["data_ledger"] == of_file()
    swept = told(f"sweep {flags} --over algorithm.lr=0.01,0.02 --json")["ledger"]
    assert (swept["runs"], swept["open"]) == (4, 0)
    before = (tmp_path / "data.json").read_bytes(), set((tmp_path / "runs").iterdir())
    assert "4 runs" in told(f"sweep {flags} --over algorithm.lr=0.1,0.2 --seeds 2 --steps 99", status=2)
    assert told(f"sweep {flags} --over privacy.ledger=data.json", status=2)
    assert before == ((tmp_path / "data.json").read_bytes(), set((tmp_path / "runs").iterdir()))
    noise = "mechanism: {kind: gaussian, multiplier: 20.0}"
    (tmp_path / "c.yaml").write_text(f"algorithms: [{{kind: d-psgd, lr: 0.03, clip: 1.0, {noise}}}]\ntune: false\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = told(f"compare --config c.yaml {problem} --steps 1 --seeds 1 --ledger data.json --json")["ledger"]
    assert found == of_file()
    assert found["runs"] == 5
