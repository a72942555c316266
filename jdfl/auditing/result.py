"""The result of an audit."""

from dataclasses import asdict, dataclass
from typing import Any

from jdfl.auditing.attack import Attack
from jdfl.auditing.probe import Probe
from jdfl.privacy.report import plain, upper


@dataclass(frozen=True, kw_only=True)
class Audit(Attack, Probe):
    """How well an attack distinguished two neighbouring datasets, compared with the accounted epsilon.

    `mu_hat` is the distance of N(0, 1) from N(mu, 1), which alone decides how well Gaussian releases can be
    distinguished. `epsilon_lower` is a bound at `confidence`; `epsilon_most` is what a faultless attack with this
    number of runs would have shown: they cannot refute a larger accounted epsilon.
    """

    algorithm: str
    runs: int  # in both worlds together
    releases: int  # by the canary's node, in the run with most
    confidence: float  # level of every bound
    delta: float
    epsilon_accounted: float  # for the largest number of releases that the node made
    mu_accounted: float | None  # None for noise that is not Gaussian, and for gradients of samples
    claimed: bool  # whether the algorithm claims it, or it would follow if all assumptions held
    canary: str
    left_out: tuple[str, ...]  # what the guarantee leaves out; constants from data are taken as public
    seconds: float  # wall time of the runs
    published: tuple[float, float] | None = None  # epsilon and delta that the algorithm's paper claims

    @property
    def violated(self) -> bool:
        """Whether the attack's bound is above the accounted epsilon, or there are findings.

        The attack flags a sound algorithm with probability at most 1 - `confidence`, and all tests of repeated rounds
        together with probability at most 1e-6.
        """
        return bool(self.families)

    @property
    def families(self) -> tuple[str, ...]:
        """What refutes the account: "attack" where the attack does, then the families of the findings, clearest first.

        Families indicate where to look for the error, such as the noise's size, the sensitivity or the sampling. Empty
        where nothing refutes the account.
        """
        attack = ["attack"] if self.epsilon_lower > self.epsilon_accounted else []
        return tuple(dict.fromkeys(attack + [one.family for one in self.findings]))

    @property
    def exit_status(self) -> int:
        """The exit status of `jdfl audit`: 0 not refuted, 3 refuted, 4 inconclusive.

        Scripts can distinguish the three by it. 0 is no proof, since another attack may be better, and 4 calls for more
        runs. The command itself exits with 2 for settings that it refuses.
        """
        return 3 if self.violated else 4 if self.inconclusive else 0

    @property
    def inconclusive(self) -> bool:
        """Whether nothing was refuted, no rounds could be repeated, and more is claimed than the attack can judge.

        `not_probed` says why no rounds were repeated. An attack alone finds few errors, so a claim is inconclusive
        then; so is any account above `epsilon_most`, the bound of a faultless attack with this number of runs.
        """
        unjudged = self.claimed or self.epsilon_accounted > self.epsilon_most
        return not self.violated and bool(self.not_probed) and unjudged

    @property
    def refutes_published(self) -> bool:
        """Whether the attack shows more than the paper's claim allows.

        It compares `delta_lower`, a bound at `confidence` for the published epsilon, with the published delta, and is
        False where no paper claims anything. It does not affect `violated`, which concerns what jdfl accounts for.
        """
        return self.published is not None and self.delta_lower is not None and self.delta_lower > self.published[1]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that are not finite become None.

        All fields by name, the findings as dictionaries, and `violated`. `jdfl audit --json` prints it. A number of
        None is an infinite one, or one that does not apply.
        """
        return plain(asdict(self) | {"violated": self.violated})

    def statement(self) -> str:
        """The audit in words, as Markdown list items.

        The first item is the verdict: VIOLATED, INCONCLUSIVE or not refuted, with the epsilon that was shown, its
        confidence and the accounted one. Then follow mu, the attack's size, the failed tests, the published claim, and
        what was not attacked.
        """
        accounted = f"({upper(self.epsilon_accounted)}, {self.delta:g})"
        basis = "claimed" if self.claimed else "not claimed: what would follow if all assumptions held"
        shown = f"shows epsilon >= {self.epsilon_lower:.4g} at {100 * self.confidence:g} % confidence"
        attacked = f"the attack on {self.algorithm} {shown}, against an accounted {accounted} ({basis})"
        if self.violated:
            measured = [family for family in self.families if family != "attack"]
            why = [f"the attack {shown}"] if "attack" in self.families else []
            why += [f"measurements disagree: {', '.join(measured)}"] if measured else []
            verdict = (
                f"VIOLATED: {self.algorithm} is accounted for as {accounted}-differentially private ({basis}), "
                f"but {', and '.join(why)}"
            )
        elif self.inconclusive:
            why = "which this number of runs cannot refute"
            if self.epsilon_accounted <= self.epsilon_most:
                why = "and nothing else was measured"
            verdict = f"INCONCLUSIVE: {attacked}, {why}"
        else:
            verdict = f"not refuted: {attacked}. An audit can refute but not prove: another attack may be better"
        mu = "" if self.mu_accounted is None else f", against an accounted {self.mu_accounted:.4g}"
        lines = [
            f"audit: {verdict}",
            f"mu: {self.mu_hat:.4g} ({self.mu_low:.4g} to {self.mu_high:.4g}){mu}; AUC {self.auc:.4g}",
            f"attack: {self.runs} runs, {self.releases} releases of the node, canary {self.canary}; "
            f"{self.seconds:.1f} s",
        ]
        if self.not_probed:
            lines.append(f"not probed: {self.not_probed}")
        elif self.tests:
            lines.append(f"probed: {self.tests} tests of repeated rounds, {len(self.findings)} failed")
        clearest = {one.family: one for one in reversed(self.findings)}
        lines += [
            f"{one.family}: {one.told} (p = {one.p:.2g}, below {one.level:.2g})" for one in reversed(clearest.values())
        ]
        if self.published is not None and self.delta_lower is not None:
            told = "REFUTED" if self.refutes_published else "not refuted"
            lines.append(
                f"as published, {told}: epsilon = {self.published[0]:.4g} at delta = {self.published[1]:.4g}; the "
                f"attack shows delta >= {self.delta_lower:.4g} there"
            )
        lines += [f"not attacked, taken as public: {one}" for one in self.left_out]
        if not self.violated and self.mu_accounted is not None and self.mu_low > self.mu_accounted:
            lines.append(
                "warning: mu is above the accounted one, beyond what chance explains: look for an error, or use "
                "more runs"
            )
        if not self.violated and self.epsilon_accounted > self.epsilon_most:
            lines.append(
                f"this number of runs can show epsilon >= {self.epsilon_most:.4g} at most: more are needed to refute "
                f"{upper(self.epsilon_accounted)}"
            )
        return "\n".join(f"- {line}" for line in lines) + "\n"
