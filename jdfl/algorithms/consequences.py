"""Measured results of small runs with codecs that methods warn about: the numbers in these warnings.

`python -m experiments.codec_warnings` measures it: linear regression with sparse parameters (Example 1 of the CEPS
paper) on a ring of 8 nodes, n = 100, 200 rounds, seed 0, in float64.
"""

from typing import NamedTuple

from jdfl.codecs import Codec


class Measured(NamedTuple):
    """The final objectives of two runs that differ in the setting warned about; infinite where a run diverged."""

    warned: str  # the setting warned about
    objective: float  # its final objective
    instead: str  # the alternative
    reached: float


MEASURED: dict[tuple[str, str], Measured] = {  # by the method's name in messages, and the codec's class
    ("D-PSGD", "Sign"): Measured("Sign()", 6.92, "Dense()", 0.079),
    ("D-PSGD", "OneBit"): Measured("OneBit(d=200, s=10)", 1.93, "Dense()", 0.079),
    ("D-PSGD", "Sparse"): Measured("Sparse(s=1)", 7.79, "Dense()", 0.079),
    ("D-PSGD", "RandomK"): Measured("RandomK(share=0.5)", 7.5, "Dense()", 0.079),
    ("D-PSGD", "LowRank"): Measured("LowRank()", 8.47, "Dense()", 0.079),
    ("D-PSGD", "QSGD"): Measured("QSGD(levels=1)", 1.21e16, "Dense()", 0.079),
    ("DFedAvgM", "Sign"): Measured("Sign()", 5.86, "Dense()", 0.0616),
    ("DFedAvgM", "OneBit"): Measured("OneBit(d=200, s=10)", 1.01, "Dense()", 0.0616),
    ("DFedAvgM", "Sparse"): Measured("Sparse(s=1)", 7.22, "Dense()", 0.0616),
    ("DFedAvgM", "RandomK"): Measured("RandomK(share=0.5)", 6.27, "Dense()", 0.0616),
    ("DFedAvgM", "LowRank"): Measured("LowRank()", 8.25, "Dense()", 0.0616),
    ("DFedAvgM", "QSGD"): Measured("QSGD(levels=1)", 2.62e25, "Dense()", 0.0616),
    ("DFedSAM", "Sign"): Measured("Sign()", 7.64, "Dense()", 0.0737),
    ("DFedSAM", "OneBit"): Measured("OneBit(d=200, s=10)", 1.99, "Dense()", 0.0737),
    ("DFedSAM", "Sparse"): Measured("Sparse(s=1)", 8.67, "Dense()", 0.0737),
    ("DFedSAM", "RandomK"): Measured("RandomK(share=0.5)", 8.26, "Dense()", 0.0737),
    ("DFedSAM", "LowRank"): Measured("LowRank()", 9.54, "Dense()", 0.0737),
    ("DFedSAM", "QSGD"): Measured("QSGD(levels=1)", 7.09e14, "Dense()", 0.0737),
    ("DP-DDA", "Sign"): Measured("Sign()", 7.05, "Dense()", 0.188),
    ("DP-DDA", "OneBit"): Measured("OneBit(d=200, s=10)", 8.05, "Dense()", 0.188),
    ("DP-DDA", "Sparse"): Measured("Sparse(s=1)", 8.42, "Dense()", 0.188),
    ("DP-DDA", "RandomK"): Measured("RandomK(share=0.5)", 8.13, "Dense()", 0.188),
    ("DP-DDA", "LowRank"): Measured("LowRank()", 8.97, "Dense()", 0.188),
    ("DP-DDA", "QSGD"): Measured("QSGD(levels=1)", 1.45e19, "Dense()", 0.188),
    ("DPDO", "Sign"): Measured("Sign()", 9.68, "Dense()", 0.161),
    ("DPDO", "OneBit"): Measured("OneBit(d=200, s=10)", 3.12, "Dense()", 0.161),
    ("DPDO", "Sparse"): Measured("Sparse(s=1)", 10.1, "Dense()", 0.161),
    ("DPDO", "RandomK"): Measured("RandomK(share=0.5)", 10.1, "Dense()", 0.161),
    ("DPDO", "LowRank"): Measured("LowRank()", 10.3, "Dense()", 0.161),
    ("DPDO", "QSGD"): Measured("QSGD(levels=1)", 6.96e08, "Dense()", 0.161),
    ("DSGT", "Sign"): Measured("Sign()", 0.334, "Dense()", 0.0668),
    ("DSGT", "OneBit"): Measured("OneBit(d=200, s=10)", 1.03e29, "Dense()", 0.0668),
    ("DSGT", "Sparse"): Measured("Sparse(s=1)", 3.56, "Dense()", 0.0668),
    ("DSGT", "RandomK"): Measured("RandomK(share=0.5)", 0.192, "Dense()", 0.0668),
    ("DSGT", "LowRank"): Measured("LowRank()", 0.322, "Dense()", 0.0668),
    ("DSGT", "QSGD"): Measured("QSGD(levels=1)", float("inf"), "Dense()", 0.0668),
    ("EXTRA", "Sign"): Measured("Sign()", 0.31, "Dense()", 0.0669),
    ("EXTRA", "OneBit"): Measured("OneBit(d=200, s=10)", float("inf"), "Dense()", 0.0669),
    ("EXTRA", "Sparse"): Measured("Sparse(s=1)", 3.29, "Dense()", 0.0669),
    ("EXTRA", "RandomK"): Measured("RandomK(share=0.5)", 0.294, "Dense()", 0.0669),
    ("EXTRA", "LowRank"): Measured("LowRank()", 300, "Dense()", 0.0669),
    ("EXTRA", "QSGD"): Measured("QSGD(levels=1)", float("inf"), "Dense()", 0.0669),
    ("FedAvg", "Sign"): Measured("Sign()", 5.95, "Dense()", 0.069),
    ("FedAvg", "OneBit"): Measured("OneBit(d=200, s=10)", 2.01, "Dense()", 0.069),
    ("FedAvg", "Sparse"): Measured("Sparse(s=1)", 8.15, "Dense()", 0.069),
    ("FedAvg", "RandomK"): Measured("RandomK(share=0.5)", 9.62, "Dense()", 0.069),
    ("FedAvg", "LowRank"): Measured("LowRank()", 10.6, "Dense()", 0.069),
    ("FedAvg", "QSGD"): Measured("QSGD(levels=1)", float("inf"), "Dense()", 0.069),
    ("IHT-D-PSGD", "Sign"): Measured("Sign()", 9.38, "Dense()", 0.116),
    ("IHT-D-PSGD", "OneBit"): Measured("OneBit(d=200, s=10)", 0.969, "Dense()", 0.116),
    ("IHT-D-PSGD", "Sparse"): Measured("Sparse(s=1)", 8.13, "Dense()", 0.116),
    ("IHT-D-PSGD", "RandomK"): Measured("RandomK(share=0.5)", 7.94, "Dense()", 0.116),
    ("IHT-D-PSGD", "LowRank"): Measured("LowRank()", 8.92, "Dense()", 0.116),
    ("IHT-D-PSGD", "QSGD"): Measured("QSGD(levels=1)", 46.4, "Dense()", 0.116),
    ("MATCHA", "Sign"): Measured("Sign()", 7.36, "Dense()", 0.0725),
    ("MATCHA", "OneBit"): Measured("OneBit(d=200, s=10)", 1.82, "Dense()", 0.0725),
    ("MATCHA", "Sparse"): Measured("Sparse(s=1)", 8.51, "Dense()", 0.0725),
    ("MATCHA", "RandomK"): Measured("RandomK(share=0.5)", 8.04, "Dense()", 0.0725),
    ("MATCHA", "LowRank"): Measured("LowRank()", 9.42, "Dense()", 0.0725),
    ("MATCHA", "QSGD"): Measured("QSGD(levels=1)", 3.13e15, "Dense()", 0.0725),
    ("NIDS", "Sign"): Measured("Sign()", 0.598, "Dense()", 0.0668),
    ("NIDS", "OneBit"): Measured("OneBit(d=200, s=10)", float("inf"), "Dense()", 0.0668),
    ("NIDS", "Sparse"): Measured("Sparse(s=1)", 3.18, "Dense()", 0.0668),
    ("NIDS", "RandomK"): Measured("RandomK(share=0.5)", 0.283, "Dense()", 0.0668),
    ("NIDS", "LowRank"): Measured("LowRank()", 390, "Dense()", 0.0668),
    ("NIDS", "QSGD"): Measured("QSGD(levels=1)", float("inf"), "Dense()", 0.0668),
    ("exact diffusion", "Sign"): Measured("Sign()", 0.262, "Dense()", 0.0669),
    ("exact diffusion", "OneBit"): Measured("OneBit(d=200, s=10)", float("inf"), "Dense()", 0.0669),
    ("exact diffusion", "Sparse"): Measured("Sparse(s=1)", 3.55, "Dense()", 0.0669),
    ("exact diffusion", "RandomK"): Measured("RandomK(share=0.5)", 0.283, "Dense()", 0.0669),
    ("exact diffusion", "LowRank"): Measured("LowRank()", 393, "Dense()", 0.0669),
    ("exact diffusion", "QSGD"): Measured("QSGD(levels=1)", float("inf"), "Dense()", 0.0669),
    ("DCD-PSGD", "QSGD"): Measured("QSGD(levels=1)", float("inf"), "Dense()", 0.079),
    ("DCD-PSGD", "RandomK"): Measured("RandomK(share=0.3, scaled=True)", float("inf"), "Dense()", 0.079),
    ("quantised DFedAvgM", "QSGD"): Measured("QSGD(levels=1)", float("inf"), "Dense()", 0.0616),
    ("quantised DFedAvgM", "RandomK"): Measured("RandomK(share=0.3, scaled=True)", float("inf"), "Dense()", 0.0616),
    ("CHOCO-SGD", "Sparse"): Measured(
        "Sparse(share=0.1) and gamma = 1", 3.43e03, "Sparse(share=0.1) and gamma = 0.1", 0.312
    ),
    ("CHOCO-SGD", "RandomK"): Measured(
        "RandomK(share=0.1) and gamma = 1", 2.93e19, "RandomK(share=0.1) and gamma = 0.1", 0.315
    ),
    ("CHOCO-SGD", "LowRank"): Measured("LowRank() and gamma = 1", 6.15e16, "LowRank() and gamma = 0.1", 0.312),
    ("DO-ADP", "Sparse"): Measured(
        "Sparse(share=0.1) and gamma = 1", 2.56e03, "Sparse(share=0.1) and gamma = 0.1", 0.313
    ),
    ("DO-ADP", "RandomK"): Measured(
        "RandomK(share=0.1) and gamma = 1", 9.49e19, "RandomK(share=0.1) and gamma = 0.1", 0.315
    ),
    ("DO-ADP", "LowRank"): Measured("LowRank() and gamma = 1", 1.72e17, "LowRank() and gamma = 0.1", 0.312),
}


def consequence(method: str, codec: Codec) -> str:
    """The sentence for a warning about this codec with this method; empty where it was not measured."""
    found = MEASURED.get((method, type(codec).__name__))
    if found is None or not type(codec).__module__.startswith("jdfl."):
        return ""
    came = "diverges" if found.objective == float("inf") else f"ends at the objective {found.objective:.3g}"
    return (
        f" Measured with {method} on a ring of 8 nodes (n = 100, 200 rounds, float64): the run {came} with "
        f"{found.warned}, and ends at {found.reached:.3g} with {found.instead}."
    )
