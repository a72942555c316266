"""Runs over several processes: mistakes are refused; (slow) the same results, and an end in words if one dies."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

from jdfl.cli import main
from jdfl.devices import processes
from jdfl.devices.processes import ProcessLostError
from jdfl.results.checkpoints import JOURNAL, RECORDS
from jdfl.store import journal
from jdfl.store import snapshots as storage
from tests.refused import refused
from tests.test_sharding import near, same_history

pytestmark = pytest.mark.optimized

RUN = ["--problem.m", "10", "--algorithm", "d-psgd", "--quiet"]


def test_half_an_address_is_refused_and_one_process_agrees_with_itself():
    here = "127.0.0.1:1"
    for words, given in (
        ("processes = None", (here,)),
        ("address = None", (None, 2, 0)),
        ("process = 2", (here, 2, 2)),
        ("processes = 0", (here, 0, 0)),
        ("'nowhere'", ("nowhere", 2, 0)),
    ):
        with refused(words):
            processes.join(*given)
    assert (processes.leads(), processes.highest(3), processes.summed(2**64 - 3)) == (True, 3, 2**64 - 3)
    assert processes.on_host(jax.random.key(3)) == jax.random.key(3)


def test_what_cannot_begin_says_what_to_do(capsys):
    """There is no cluster here, and JAX computes already."""
    assert main(["run", *RUN, "--steps", "1", "--distributed"]) == 2
    assert "Start the same command once per process" in capsys.readouterr().err


def started(out: Path, steps: int, process: int | None, port: int = 0, slurm: bool = False, more: Sequence[str] = (),
            resume: bool = False) -> subprocess.Popen:  # fmt: skip
    """A process of `jdfl run`, or of `jdfl resume` of the run there, one of two with two devices each or the only one.

    What it complains of is in a file.
    """
    does = ["resume", str(out / "run"), "--quiet"] if resume else ["run", *RUN, "--out", str(out)]
    command = [sys.executable, "-m", "jdfl", *does, "--steps", str(steps), *more]
    environment = dict(os.environ)
    if slurm:
        command += ["--distributed", "--devices", "2"]
        job = {"JOB_ID": 1000 + os.getpid(), "STEP_NODELIST": "localhost", "NTASKS": 2, "STEP_NUM_NODES": 1}
        task = {"PROCID": process, "LOCALID": process}
        environment |= {f"SLURM_{name}": str(value) for name, value in (job | task).items()}
    elif process is not None:
        joins = {"coordinator": f"127.0.0.1:{port}", "processes": 2, "process": process, "devices": 2}
        command += [str(word) for name, value in joins.items() for word in (f"--{name}", value)]
    with complaints(out, process).open("w") as file:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file, env=environment)


def complaints(out: Path, process: int | None) -> Path:
    return out.with_name(f"{out.name}-{process}.log")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


NEURAL = "--problem neural --problem.data digits --problem.m 13 --problem.nodes-at-once 1 --algorithm.batch 10"
DATA = {
    "least squares": [],
    "drawn": ["--problem.storage", "generated"],
    "logistic": ["--problem", "classification", "--problem.data", "breast_cancer", "--algorithm.clip", "1"],
    "a neural network": NEURAL.split(" "),
}


def same_folder(one: Path, many: Path) -> None:
    """The folders of two runs on other numbers of devices: the same but for rounding."""
    with np.load(one / "params.npz") as alone, np.load(many / "params.npz") as spread:
        near(alone["params"], spread["params"])
        same_history(*(pd.read_csv(folder / "metrics.csv") for folder in (one, many)), alone["params"])


@pytest.mark.slow
@pytest.mark.parametrize(("data", "slurm"), [*((data, False) for data in DATA), ("least squares", True)])
def test_two_processes_find_what_one_finds(tmp_path, data, slurm):
    """Each of them with the data of its own nodes."""
    port, out = free_port(), {0: tmp_path / "two", 1: tmp_path / "two", None: tmp_path / "one"}
    running = {
        process: started(folder, 30, process, port, slurm and process is not None, DATA[data])
        for process, folder in out.items()
    }
    for process, one in running.items():
        assert one.wait(timeout=120) == 0, complaints(out[process], process).read_text()
    (two,), (one,) = (list((tmp_path / name).iterdir()) for name in ("two", "one"))
    same_folder(one, two)


LISTEN = """
import sys
from jdfl.devices import processes
import jax
processes.join(sys.argv[1], 1, 0)
print(open("/proc/net/tcp").read(), open("/proc/net/tcp6").read())
jax.distributed.shutdown()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at sockets as Linux shows them")
def test_process_0_listens_at_the_given_address_alone():
    port = free_port()
    command = [sys.executable, "-c", LISTEN, f"localhost:{port}"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    lines = [line.split() for line in told.splitlines()]
    listening = [parts[1] for parts in lines if len(parts) > 3 and parts[3] == "0A"]
    found = {place.partition(":")[0] for place in listening if place.endswith(f":{port:04X}")}
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert found
    assert found <= loopback


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_if_one_dies_the_other_ends_and_the_last_checkpoint_goes_on_elsewhere(tmp_path, killed):
    port, left = free_port(), 1 - killed
    often = ["--checkpoint-every", "50", "--every", "10"]
    both = [started(tmp_path / "run", 10**9, process, port, more=often) for process in (0, 1)]
    try:
        for _ in range(120):
            time.sleep(0.5)
            if list((tmp_path / "run").glob("*/checkpoints/*0.npz")):
                break
        time.sleep(5)
        assert [process.poll() for process in both] == [None, None]
        both[killed].kill()
        assert both[left].wait(timeout=60) == 4
    finally:
        for process in both:
            process.kill()
            process.wait()
    assert "lost the others" in complaints(tmp_path / "run", left).read_text()
    (folder,) = (tmp_path / "run").iterdir()
    done = storage.newest(folder / "checkpoints")
    assert done
    assert done % 50 == 0
    last = 15 + max(done, *journal.read(folder / JOURNAL).rows(RECORDS)["round"])  # fewer than were done are refused
    for name in ("alone", "together"):
        shutil.copytree(folder, tmp_path / name / "run")
    port = free_port()
    on = [("alone", None, ["--devices", "3"]), ("together", 0, []), ("together", 1, [])]
    all_on = [started(tmp_path / name, last, process, port, more=more, resume=True) for name, process, more in on]
    all_on.append(started(tmp_path / "unbroken", last, None, more=["--every", "10"]))
    assert [one.wait(timeout=300) for one in all_on] == [0] * 4
    whole = next((tmp_path / "unbroken").iterdir())
    for name in ("alone", "together"):
        resumed = next((tmp_path / name).iterdir())
        same_folder(whole, resumed)


def test_what_ends_a_run_is_another_process_or_ones_own(monkeypatch):
    own, other = "RESOURCE_EXHAUSTED: Out of memory", "INTERNAL: connection closed by peer"
    error = jax.errors.JaxRuntimeError
    for count, words, kind in ((1, own, error), (1, other, error), (2, own, error), (2, other, ProcessLostError)):
        monkeypatch.setattr(jax, "process_count", lambda count=count: count)
        with pytest.raises(kind, match=words), processes.watched():
            raise error(words)


def test_an_abort_ends_in_words():
    """JAX may abort a process that lost the others before an exchange fails."""
    code = "import os, threading; from jdfl.devices import processes; processes.report_aborts(); "
    code += "threading.Thread(target=os.abort).start(); threading.Event().wait()"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert found.returncode == processes.LOST == 4
    assert "lost the others" in found.stderr
