"""Methods warn of codecs with which they were measured to end far from where they otherwise do."""

import warnings
from typing import Any

import pytest

import jdfl
from experiments import codec_warnings as script
from experiments import ledger
from jdfl.engine.start import check_settings
from tests.later import Later

PROBLEM = Later(script.problem)
NETWORK = Later(script.network)
PAIRS = list(script.pairs())
EXACT = (jdfl.Dense(), jdfl.Dense("bfloat16"), jdfl.Sparse(share=1.0), jdfl.QSGD(levels=255))
CODECS = (*script.LOSSY, *script.NOISY, *script.SMALL, *EXACT, jdfl.QSGD(scaled=True), jdfl.Sparse(s=20))


def warned(algorithm: Any) -> list[str]:
    """What is said of a codec; nothing for those that are refused."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_settings(algorithm, PROBLEM(), NETWORK())
        except ValueError:
            return []
    words = ("sends its models", "The variance of", "is large for messages")
    return [str(one.message) for one in caught if any(word in str(one.message) for word in words)]


@pytest.mark.parametrize("name", script.DIRECT)
def test_methods_that_send_models_warn_of_every_codec_that_changes_them(name):
    for codec in CODECS:
        made = script.DIRECT[name](codec, 1.0)
        few = name == "IHT-D-PSGD" and isinstance(codec, jdfl.Sparse) and codec.size(script.SIZE) >= made.s
        said = warned(made)
        assert len(said) == (codec not in EXACT and not few), (name, codec)
        assert all("CHOCO-SGD" in one for one in said)


def test_every_measured_codec_is_one_of_a_warning():
    rows = {(one.case, one.column): one.mean for one in ledger.rows_of("codec_warnings")}
    for pair in PAIRS:
        assert any(name in said for said in warned(pair.algorithm) for name in (pair.method, "gamma")), pair
        assert not warned(pair.other), pair
        case = f"{pair.method}, {pair.warned}"
        assert rows[case, "objective"] >= 2 * rows[case, "instead"]  # or there would be nothing to warn of
    for value, warns in (("float32", 0), ("bfloat16", 0), ("int8", 0), ("int4", 1)):
        assert len(warned(jdfl.IHT(s=10, codec=jdfl.Sparse(value=value)))) == warns
    assert not warned(jdfl.CEPS(s=10, codec=jdfl.OneBit(d=200)))
