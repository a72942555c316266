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
from jdfl.store import snapshots as storage
from tests.test_sharding import near, same_history

pytestmark = pytest.mark.optimized

RUN = ["--problem.m", "10", "--algorithm", "d-psgd", "--quiet"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"address": "127.0.0.1:1"}, "processes = None"),
        ({"processes": 2, "process": 0}, "address = None"),
        ({"address": "127.0.0.1:1", "processes": 2, "process": 2}, "process = 2"),
        ({"address": "127.0.0.1:1", "processes": 0, "process": 0}, "processes = 0"),
        ({"address": "nowhere", "processes": 2, "process": 0}, "host:port.*'nowhere'"),
    ],
)
def test_half_an_address_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        processes.join(**given)


def test_what_cannot_begin_says_what_to_do(capsys):
    """There is no cluster here, and JAX computes already."""
    assert main(["run", *RUN, "--steps", "1", "--distributed"]) == 2
    assert "Start the same command once per process" in capsys.readouterr().err


def test_one_process_agrees_with_itself():
    assert processes.leads()
    assert processes.highest(3) == 3


def started(
    out: Path,
    steps: int,
    process: int | None,
    port: int = 0,
    slurm: bool = False,
    more: Sequence[str] = (),
    resume: bool = False,
) -> subprocess.Popen:
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


IMAGES = ["--problem.data", "digits", "--problem.m", "13", "--algorithm.batch", "10"]
DATA = {
    "least squares": [],
    "drawn": ["--problem.storage", "generated"],
    "logistic": ["--problem", "classification", "--problem.data", "breast_cancer", "--algorithm.clip", "1"],
    "a neural network": ["--problem", "neural", *IMAGES, "--problem.nodes-at-once", "1"],
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


def listening(address: str) -> set[str]:
    """The addresses, as the kernel writes them, at which a run with one process listens at the port of `address`."""
    command = [sys.executable, "-c", LISTEN, address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    port, found = f"{int(address.rpartition(':')[2]):04X}", set()
    for line in done.stdout.splitlines():
        parts = line.split()
        if len(parts) > 3 and parts[3] == "0A" and parts[1].endswith(f":{port}"):
            found.add(parts[1].partition(":")[0])
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at sockets as Linux shows them")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_process_0_listens_at_the_given_address_alone(host):
    found = listening(f"{host}:{free_port()}")
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
            if list((tmp_path / "run").glob("*/checkpoints/*0")):
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
    assert done is not None
    assert done % 50 == 0
    for name in ("alone", "together"):
        shutil.copytree(folder, tmp_path / name / "run")
    port = free_port()
    on = [("alone", None, ["--devices", "3"]), ("unbroken", None, ["--every", "10"])]
    on += [("together", process, []) for process in (0, 1)]
    all_on = [
        started(tmp_path / name, done + 15, process, port, more=more, resume=name != "unbroken")
        for name, process, more in on
    ]
    assert [one.wait(timeout=300) for one in all_on] == [0] * 4
    whole = next((tmp_path / "unbroken").iterdir())
    for name in ("alone", "together"):
        resumed = next((tmp_path / name).iterdir())
        same_folder(whole, resumed)
        one, other = (storage.read(run / "checkpoints").arrays for run in (whole, resumed))
        assert set(one) == set(other)
        for array in one.keys() - {"history"}:  # a file, of what is in metrics.csv
            near(one[array], other[array])


@pytest.mark.parametrize("words", ["RESOURCE_EXHAUSTED: Out of memory", "INTERNAL: connection closed by peer"])
def test_what_ends_a_run_is_another_process_or_ones_own(monkeypatch, words):
    def fail():
        with processes.watched():
            raise jax.errors.JaxRuntimeError(words)

    with pytest.raises(jax.errors.JaxRuntimeError, match=words):
        fail()
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    lost = processes.ProcessLostError if words.startswith("INTERNAL") else jax.errors.JaxRuntimeError
    with pytest.raises(lost, match=words):
        fail()


def test_an_abort_ends_in_words():
    """JAX may abort a process that lost the others before an exchange fails."""
    code = "import os, threading; from jdfl.devices import processes; processes.report_aborts(); "
    code += "threading.Thread(target=os.abort).start(); threading.Event().wait()"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert found.returncode == processes.LOST == 4
    assert "lost the others" in found.stderr
