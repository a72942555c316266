"""Which tests judge a mutant of which module: one row per module, the quickest tests first.

A row is what pytest is told. Tests that are not in a row do not judge, so that the score is a lower bound. A module
without a row is judged by all tests of its package.
"""

import re

from tests.field import ROWS

_REPORTS = ("tests/privacy/test_ledger_report.py", "tests/privacy/test_schedule_report.py")
_ACCOUNTING = tuple(f"tests/privacy/test_{name}.py" for name in ("accounting", "sampled", "calibration"))
_CODECS = tuple(f"tests/codecs/test_{name}.py" for name in ("messages", "codecs", "laws"))
_CLIPPED = ("tests/algorithms/test_clipped_gradients.py", "tests/algorithms/test_gradients.py")


def _with_laws(file: str, rows: str) -> tuple[str, ...]:
    """The tests of a file in tests/algorithms, then the laws of the contract for the rows so named."""
    return f"tests/algorithms/{file}.py", "tests/contract/test_contract.py", "-k", f"{file} or {rows}"


_FIELD = "tests/field/test_field.py", "tests/contract/test_contract.py", "-k"


def _of_the_field(module: str) -> tuple[str, ...]:
    """The loops and laws of the methods of a file in jdfl/algorithms that has its rows in tests/field."""
    names = {re.split(r"[ ,]", str(row))[0] for row in ROWS if row.module == module}
    return *_FIELD, " or ".join(sorted(names))


TABLE: dict[str, tuple[str, ...]] = {
    "jdfl/algorithms/around.py": ("tests/robust/test_attacks.py",),
    "jdfl/privacy/accounting.py": _ACCOUNTING,
    "jdfl/privacy/analytic.py": ("tests/privacy/test_analytic.py", *_ACCOUNTING),
    "jdfl/privacy/calibration.py": ("tests/privacy/test_calibration.py", *_REPORTS),
    "jdfl/privacy/clipping.py": ("tests/privacy/test_clipping.py", *_CLIPPED),
    "jdfl/privacy/exact.py": ("tests/privacy/test_exact.py",),
    "jdfl/privacy/flow.py": ("tests/privacy/test_flow.py",),
    "jdfl/privacy/guarantee.py": _REPORTS,
    "jdfl/privacy/laplace.py": ("tests/privacy/test_schedule.py", *_ACCOUNTING),
    "jdfl/privacy/ledger.py": _REPORTS,
    "jdfl/privacy/mechanisms.py": ("tests/privacy/test_mechanisms.py", "tests/privacy/test_schedule.py", *_REPORTS),
    "jdfl/privacy/slips.py": ("tests/privacy/test_exact.py",),
    "jdfl/privacy/together.py": ("tests/privacy/test_together.py",),
    "jdfl/privacy/numerical.py": ("tests/privacy/test_bounds.py", *_ACCOUNTING),
    "jdfl/privacy/relation.py": _REPORTS,
    "jdfl/privacy/replaced.py": ("tests/privacy/test_bounds.py", *_ACCOUNTING),
    "jdfl/privacy/report.py": _REPORTS,
    "jdfl/privacy/products.py": ("tests/privacy/test_sensitivity.py", "tests/privacy/test_lemma2.py"),
    "jdfl/privacy/sensitivity.py": ("tests/privacy/test_sensitivity.py",),
    "jdfl/codecs/base.py": _CODECS,
    "jdfl/codecs/dense.py": _CODECS,
    "jdfl/codecs/gpsp.py": tuple(f"tests/codecs/test_{name}.py" for name in ("gpsp", "codecs", "measurements")),
    "jdfl/codecs/logarithm.py": ("tests/codecs/test_gpsp.py", *_CODECS),
    "jdfl/codecs/low_rank.py": ("tests/codecs/test_compressors.py", *_CODECS),
    "jdfl/codecs/one_bit.py": ("tests/codecs/test_measurements.py", "tests/codecs/test_gpsp.py", *_CODECS),
    "jdfl/codecs/packing.py": _CODECS,
    "jdfl/codecs/qsgd.py": ("tests/codecs/test_compressors.py", *_CODECS),
    "jdfl/codecs/radix.py": ("tests/codecs/test_compressors.py", *_CODECS),
    "jdfl/codecs/random_k.py": ("tests/codecs/test_compressors.py", *_CODECS),
    "jdfl/codecs/sealing.py": _CODECS,
    "jdfl/codecs/sensing.py": ("tests/codecs/test_sensing.py", "tests/codecs/test_gpsp.py", *_CODECS),
    "jdfl/codecs/sign.py": ("tests/codecs/test_compressors.py", *_CODECS),
    "jdfl/codecs/sparse.py": _CODECS,
    "jdfl/codecs/subsets.py": ("tests/codecs/test_compressors.py", *_CODECS),
    "jdfl/algorithms/augmented.py": _of_the_field("admm"),
    "jdfl/algorithms/activation.py": _with_laws("test_doadp", "DO-ADP"),
    "jdfl/algorithms/algorithm.py": _with_laws("test_updates", "D-PSGD"),
    "jdfl/algorithms/book.py": _with_laws("test_family", "D-PSGD or DFedAvgM"),
    "jdfl/algorithms/moment.py": _with_laws("test_family", "D-PSGD or DFedAvgM"),
    "jdfl/algorithms/ceps.py": _with_laws("test_ceps", "CEPS-1BCS"),
    "jdfl/algorithms/ceps_paper.py": ("tests/algorithms/test_ceps.py",),
    "jdfl/algorithms/ceps_privacy.py": ("tests/theory/test_ceps_theorems.py",),
    "jdfl/algorithms/consequences.py": ("tests/algorithms/test_codec_warnings.py",),
    "jdfl/algorithms/hessians.py": _of_the_field("network_giant"),
    "jdfl/algorithms/choosing.py": (*_FIELD, "PENS or FedFomo or L2C or DisPFL"),
    "jdfl/algorithms/choco.py": _with_laws("test_compressed", "CHOCO"),
    "jdfl/algorithms/clipping.py": _CLIPPED,
    "jdfl/algorithms/codes.py": ("tests/algorithms/test_codec_warnings.py", "tests/algorithms/test_compressed.py"),
    "jdfl/algorithms/consensus.py": _with_laws("test_push_sum", "consensus"),
    "jdfl/algorithms/cpgt.py": _with_laws("test_cpgt", "CPGT"),
    "jdfl/algorithms/dcd.py": _with_laws("test_compressed", "DCD"),
    "jdfl/algorithms/decor.py": _with_laws("test_decor", "DECOR"),
    "jdfl/algorithms/descent.py": _with_laws("test_family", "D-PSGD"),
    "jdfl/algorithms/dfedavgm.py": _with_laws("test_family", "DFedAvgM"),
    "jdfl/algorithms/dfedsam.py": _with_laws("test_family", "DFedSAM"),
    "jdfl/algorithms/directed_ceps.py": _with_laws("test_directed_ceps", "directed"),
    "jdfl/algorithms/doadp.py": _with_laws("test_doadp", "DO-ADP"),
    "jdfl/algorithms/dp_dda.py": _with_laws("test_dp_dda", "DDA"),
    "jdfl/algorithms/dpdo.py": _with_laws("test_dpdo", "DPDO"),
    "jdfl/algorithms/dpps.py": _with_laws("test_push_sum", "SGP"),
    "jdfl/algorithms/dpsgd.py": _with_laws("test_family", "D-PSGD"),
    "jdfl/algorithms/dsgt.py": _with_laws("test_exact_methods", "DSGT"),
    "jdfl/algorithms/exact_diffusion.py": _with_laws("test_exact_methods", "diffusion"),
    "jdfl/algorithms/extra.py": _with_laws("test_exact_methods", "EXTRA"),
    "jdfl/algorithms/fedavg.py": _with_laws("test_family", "FedAvg"),
    "jdfl/algorithms/gradient_settings.py": _CLIPPED,
    "jdfl/algorithms/gradients.py": _CLIPPED,
    "jdfl/algorithms/iht.py": _with_laws("test_family", "IHT"),
    "jdfl/algorithms/local_only.py": _with_laws("test_family", "LocalOnly"),
    "jdfl/algorithms/mafalda.py": _with_laws("test_mafalda", "MAFALDA"),
    "jdfl/algorithms/matcha.py": _with_laws("test_family", "MATCHA"),
    "jdfl/algorithms/muffliato.py": _with_laws("test_muffliato", "Muffliato"),
    "jdfl/algorithms/nids.py": _with_laws("test_exact_methods", "NIDS"),
    "jdfl/algorithms/noisy_messages.py": _with_laws("test_updates", "DFedSAM"),
    "jdfl/algorithms/partpsp.py": _with_laws("test_partpsp", "PartPSP"),
    "jdfl/algorithms/pedfl.py": _with_laws("test_family", "PEDFL"),
    "jdfl/algorithms/program.py": _with_laws("test_family", "D-PSGD"),
    "jdfl/algorithms/one_kernel.py": ("tests/kernels/test_one_round_kernel.py",),
    "jdfl/algorithms/push_sums.py": (*_FIELD, "DFedPGP or PrivSGP"),
    "jdfl/algorithms/push_descent.py": _with_laws("test_push_sum", "SGP"),
    "jdfl/algorithms/requests.py": ("tests/algorithms/test_ceps_stored.py", *_with_laws("test_ceps", "CEPS")),
    "jdfl/algorithms/messages.py": _with_laws("test_family", "D-PSGD or CHOCO or EXTRA"),
    "jdfl/algorithms/sending.py": _with_laws("test_family", "D-PSGD or CHOCO or EXTRA"),
    "jdfl/algorithms/round.py": _with_laws("test_family", "D-PSGD or CHOCO or EXTRA"),
    "jdfl/algorithms/sampling.py": ("tests/algorithms/test_passes.py", *_CLIPPED),
    "jdfl/algorithms/sgp.py": _with_laws("test_push_sum", "SGP"),
    "jdfl/algorithms/statement.py": ("tests/privacy/test_flow.py", "tests/privacy/test_public_and_outputs.py"),
    "jdfl/algorithms/step_sizes.py": _with_laws("test_exact_methods", "EXTRA"),
    "jdfl/algorithms/doadp_privacy.py": ("tests/theory/test_doadp_theorems.py", "tests/algorithms/test_doadp.py"),
    "jdfl/algorithms/updates.py": _with_laws("test_updates", "subsets"),
    **{f"jdfl/algorithms/{row.module}.py": _of_the_field(row.module) for row in ROWS},
}
