"""The theorems of the CEPS, DPPS and DO-ADP papers as values, and which of them speak of a run."""

from experiments.theory.statement import Theory, theory

__all__ = ["Theory", "theory"]
