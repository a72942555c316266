"""The results of audits of one run, and of the bits of releases."""

from dataclasses import asdict, dataclass
from typing import Any

from jdfl.auditing.attack import Attack
from jdfl.privacy.report import plain, upper


@dataclass(frozen=True, kw_only=True)
class OneRun:
    """What guessing the coins of many canaries from one run proves about epsilon.

    `epsilon_lower` is a bound at `confidence`. `mu_hat` is the distance between the scores of canaries with either
    outcome of the coin, in standard deviations: an estimate of what a single canary reveals, which proves nothing by
    itself.
    """

    epsilon_lower: float
    epsilon_most: float  # the bound if all guesses were correct
    mu_hat: float
    mu_low: float  # lower end of its confidence interval
    mu_high: float  # upper end
    algorithm: str
    canaries: int  # number of coins
    guesses: int  # used for the bound
    right: int  # correct ones among them
    releases: int  # by the node with most
    confidence: float  # level of the bound
    delta: float
    epsilon_accounted: float  # of the most exposed node
    mu_accounted: float | None  # None for noise that is not Gaussian, and for gradients of samples
    claimed: bool  # whether the algorithm claims it, or it would follow if all assumptions held
    left_out: tuple[str, ...]  # what the guarantee leaves out
    seconds: float  # wall time

    @property
    def violated(self) -> bool:
        """Whether the bound is above the accounted epsilon.

        For a sound algorithm this has probability at most 1 - `confidence`.
        """
        return self.epsilon_lower > self.epsilon_accounted

    @property
    def inconclusive(self) -> bool:
        """Whether this number of canaries could not have refuted the account.

        The accounted epsilon is then above `epsilon_most`. More canaries raise that, logarithmically.
        """
        return not self.violated and self.epsilon_accounted > self.epsilon_most

    @property
    def exit_status(self) -> int:
        """The exit status of `jdfl audit --runs 1`: 0 not refuted, 3 refuted, 4 inconclusive.

        The command itself exits with 2 for settings that it refuses.
        """
        return 3 if self.violated else 4 if self.inconclusive else 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that are not finite become None.

        All fields by name, and `violated`. `jdfl audit --runs 1 --json` prints it.
        """
        return plain(asdict(self) | {"violated": self.violated})

    def statement(self) -> str:
        """The audit in words, as Markdown list items.

        The first item is the verdict: VIOLATED, INCONCLUSIVE or not refuted, with the epsilon that was shown, its
        confidence and the accounted one. Then follow mu, the guesses, and what was not attacked.
        """
        accounted = f"({upper(self.epsilon_accounted)}, {self.delta:g})"
        basis = "claimed" if self.claimed else "not claimed: what would follow if all assumptions held"
        verdict = "VIOLATED" if self.violated else "INCONCLUSIVE" if self.inconclusive else "not refuted"
        why = ", which this number of canaries cannot refute" if self.inconclusive else ""
        if not self.violated and not self.inconclusive:
            why = ". One run can only refute gross errors; another attack may be better"
        mu = "" if self.mu_accounted is None else f", against an accounted {self.mu_accounted:.4g}"
        lines = [
            f"audit of one run: {verdict}: the attack on {self.algorithm} shows epsilon >= {self.epsilon_lower:.4g} at "
            f"{100 * self.confidence:g} % confidence, against an accounted {accounted} ({basis}){why}",
            f"mu: {self.mu_hat:.4g} ({self.mu_low:.4g} to {self.mu_high:.4g}){mu}",
            f"attack: {self.right} of {self.guesses} guesses about {self.canaries} canaries are correct, "
            f"{self.releases} releases per node; if all were correct, epsilon >= {self.epsilon_most:.4g} would be "
            f"shown; {self.seconds:.1f} s",
        ]
        lines += [f"not attacked, taken as public: {one}" for one in self.left_out]
        if not self.violated and self.mu_accounted is not None and self.mu_low > self.mu_accounted:
            lines.append(
                "warning: mu is above the accounted one, beyond what chance explains: look for an error, or use "
                "more canaries"
            )
        return "\n".join(f"- {line}" for line in lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class BitAudit(Attack):
    """How well two vectors were distinguished by the bits of their releases.

    `epsilon_lower` is a bound at `confidence`, for a single release, as is the accounted epsilon.
    """

    algorithm: str
    mechanism: str
    runs: int  # releases of both vectors together
    confidence: float  # level of every bound
    delta: float
    epsilon_accounted: float  # of one release
    covered: bool  # whether the mechanism claims it against an observer of the bits
    seconds: float  # wall time

    @property
    def shown(self) -> bool:
        """Whether the bound is above the accounted epsilon, whether or not bits are covered by the claim."""
        return self.epsilon_lower > self.epsilon_accounted

    @property
    def violated(self) -> bool:
        """Whether the bound is above an epsilon that is claimed against an observer of the bits.

        `Gaussian` claims none: what the bits show of it is outside its claim, and `shown` says whether it exceeds it.
        """
        return self.covered and self.shown

    @property
    def exit_status(self) -> int:
        """The exit status of `jdfl audit --bits`: 3 refuted, else 0, also where the result is outside the claim."""
        return 3 if self.violated else 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that are not finite become None.

        All fields by name, with `shown` and `violated`. `jdfl audit --bits --json` prints it.
        """
        return plain(asdict(self) | {"shown": self.shown, "violated": self.violated})

    def statement(self) -> str:
        """The audit in words, as Markdown list items.

        The first item is the verdict: VIOLATED, OUTSIDE THE CLAIM or not refuted, with the epsilon that was shown.
        """
        verdict = "VIOLATED" if self.violated else "OUTSIDE THE CLAIM" if self.shown else "not refuted"
        accounted = f"({upper(self.epsilon_accounted)}, {self.delta:g})"
        told = f"the bits of one release of {self.mechanism} show epsilon >= {self.epsilon_lower:.4g} at "
        told += f"{100 * self.confidence:g} % confidence, against an accounted {accounted}"
        if not self.covered:
            told += ", which is void against an observer of the bits; ExactGaussian's is not"
        lines = [f"audit of bits: {verdict}: {told}", f"AUC {self.auc:.4g}; {self.runs} releases; {self.seconds:.1f} s"]
        return "\n".join(f"- {line}" for line in lines) + "\n"
