"""One ledger per data set: what runs may release is written down before they begin, once for the same noise."""

import contextlib
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import jdfl
from jdfl.base.run_keys import RunKey
from jdfl.engine import booking, data_ledger
from jdfl.engine.accountant import ledger_of_run
from jdfl.engine.data_ledger import Intent
from jdfl.privacy import GaussianEvent
from jdfl.privacy.ledger import total_epsilon
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
    return [one.charge() for one in data_ledger.read(book.path).entries.values()]


def together(*runs):
    return total_epsilon([ledger_of_run(one) for one in runs], DELTA)


def test_the_ledger_costs_what_its_runs_cost_together(book):
    runs = [run(ledger=book), run(LOUDER, ledger=book)]
    how = {"steps": 1, "metrics": [], "ledger": book}
    runs += jdfl.sweep(NOISY, DRAWN(), NETWORK(), over={"lr": [0.1, 0.2]}, **how)
    found = book.standing()
    assert (found.runs, found.open, found.epsilon) == (4, 0, together(*runs))
    assert runs[-1].standing == found
    assert runs[0].standing.epsilon == together(runs[0]) < found.epsilon
    assert found.as_dict()["epsilon"] == found.epsilon
    assert "4 runs" in found.statement()
    assert len(book.lines()) == 4


def test_a_run_goes_on_in_its_own_entry_and_another_with_its_key_is_refused(book):
    first = run(ledger=book, key=3)
    longer = run(ledger=book, key=3, steps=4, resume=first)
    assert (longer.standing.runs, longer.standing.epsilon) == (1, together(longer))
    before = book.path.read_bytes()
    with refused("private key", str(book.path)):
        run(LOUDER, ledger=book, key=3)
    with refused("private key", str(book.path)):
        jdfl.repeat(NOISY, DRAWN(), NETWORK(), keys=[4, 3], steps=1, ledger=book, metrics=[])
    assert book.path.read_bytes() == before


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


def test_work_in_a_folder_gives_back_what_it_or_its_killed_process_had_reserved(book, tmp_path):
    booking.Room(book, tmp_path).keep(lambda: [intent(releases=9), intent("b")])  # killed
    with booking.Room(book, tmp_path) as room:
        room.keep(lambda: [intent()])
        assert [one.releases.tolist() for one in charges(book)] == [[3, 1]]
    assert book.standing().runs == len(list(tmp_path.glob(booking.RESERVED))) == 0
    (tmp_path / booking.RESERVED).write_text("[3")
    with refused(booking.RESERVED, str(book.path)):
        booking.Room(book, tmp_path).keep(list)


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
    most = intent("b", releases=fit)._replace(data=data_ledger.read(book.path).data)
    assert 0 < fit == int(most.ledger.releases.max())
    assert total_epsilon([ledger_of_run(run()), most.ledger], DELTA) <= 4.0


def test_runs_without_an_epsilon_are_refused_before_they_begin(book):
    with refused("clip"):
        run(replace(NOISY, gradients=replace(NOISY.gradients, clip=None)), ledger=book)
    with refused("stop"):
        run(ledger=book, stop=jdfl.objective_below(1e9))
    found = run(ledger=book, callbacks=[lambda now: "enough"], options=jdfl.Options(chunk=1))
    assert found.standing.epsilon == np.inf  # once data have ended a run, of all
    with refused("stop rule"):
        run(ledger=book, key=1)


def test_comparisons_keep_room_for_tuning_and_reported_runs(book, monkeypatch):
    def compared(problem, **changes):
        tune = jdfl.Tuning(**({"keys": (5,), "extend": 0} | changes))
        entries, how = {"noisy": jdfl.Entry(NOISY, tune={"lr": [0.01, 0.02]})}, {"steps": 1, "budget": {"round": None}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return jdfl.compare(entries, problem, NETWORK(), trials=[0], tuning=tune, ledger=book, **how)

    with refused("tuning"):
        compared(DRAWN())
    problem, kept, record = DRAWN().declared("tuning"), [], data_ledger.DataLedger.reserve
    with refused(extend=2):
        compared(problem, extend=2)

    def reserve(self, runs, **how):
        hold = record(self, runs, **how)
        kept.append(self.standing())
        return hold

    monkeypatch.setattr(data_ledger.DataLedger, "reserve", reserve)
    found = compared(problem)
    assert kept[0].runs == 2 + 1  # of tuning, and one that will be reported
    assert all(one.epsilon <= kept[0].epsilon for one in kept)
    assert (found.standing.runs, found.standing.open) == (3, 0)
    assert found.standing.epsilon == together(*[found.results["noisy"][0]] * 3)
    assert found.standing.statement() in " ".join(found.table().split())


def test_files_that_are_no_whole_ledger_are_refused(tmp_path, book):
    none = tmp_path / "none.json"
    with refused(FileExistsError, str(book.path)):
        jdfl.DataLedger.create(book.path, epsilon=5.0, delta=DELTA)
    with refused(FileNotFoundError, str(none)):
        jdfl.DataLedger(none)
    wrong = {"path": 3}, {"path": ""}, {"epsilon": 0.0}, {"delta": 1.0}
    each_refused(jdfl.DataLedger.create, *wrong, path=none, epsilon=1.0, delta=DELTA)
    book.reserve([intent()])
    text = book.path.read_text()
    edited = [text.replace(*one) for one in (("[3, 1]", "[2, 1]"), ('"version": 2', '"version": 1'))]
    assert text not in edited
    for damaged in (text[:-9], "", "{}", *edited):
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

    with ThreadPoolExecutor(6) as every:
        list(every.map(enter, "abcdef"))
    assert len(inside) == 1
    assert room.standing().epsilon == least[0]
