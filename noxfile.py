"""The tests on every supported Python, how much of jdfl they run, and whether they would see a mistake in it.

nox itself needs newer attrs than dp-accounting lets jdfl have, so it lives in an environment of its own:
`pipx run nox -s tests-3.13 -- tests/test_ops.py`. An interpreter that is not on the PATH is skipped, by name.
"""

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["tests"]
JAX = {"3.11": "jax==0.10.*", "3.12": "jax", "3.13": "jax"}  # the last series for 3.11; newest that pyproject allows


@nox.session(python=list(JAX))
def tests(session: nox.Session) -> None:
    """The quick tests, or those that are named."""
    session.install("-e", ".[test]", JAX[str(session.python)], "--upgrade-strategy", "eager", "--upgrade")
    session.run("python", "-c", "import sys, jax; print('Python', sys.version.split()[0], 'with jax', jax.__version__)")
    session.run("pytest", "-n", "2", "--dist", "loadfile", "--optimized", *session.posargs)


@nox.session(python="3.13")
def coverage(session: nox.Session) -> None:
    """Branches of jdfl that the quick tests run; fewer than 92 % fail."""
    session.install("-e", ".[test,quality]")
    judged = ["--cov=jdfl", "--cov-branch", "--cov-report=term-missing:skip-covered", "--cov-fail-under=92"]
    session.run("pytest", "-n", "2", "--dist", "loadfile", *judged, *session.posargs)


@nox.session(python="3.11")
@nox.parametrize("target", ["cuda", "tpu"])
def aot(session: nox.Session, target: str) -> None:
    """Every method compiled for an H100 or a TPU v5e that is not there, and its kernels counted."""
    session.install("-e", f".[test,{target}]", JAX["3.11"])  # of the recorded counts
    device = {"cuda": "h100", "tpu": "v5e"}[target]
    session.run("python", "-m", "benchmarks.roofline", "--registered", "--target", device, *session.posargs)
