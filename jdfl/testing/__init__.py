"""Checks of your own algorithms, codecs, networks and problems against the laws that jdfl's members keep.

    import jdfl.testing

    jdfl.testing.check_algorithm(MyAlgorithm(lr=0.1))
    jdfl.testing.check_codec(MyCodec())
    jdfl.testing.check_network(my_network)
    jdfl.testing.check_problem(my_problem)

Nothing here needs pytest. Each function tries all laws of its family, or the one that `law` names, and raises
`LawBrokenError` with the law and the numbers. `LAWS`, `CODEC_LAWS`, `NETWORK_LAWS` and `PROBLEM_LAWS` have the laws by
their names, for one test each:

    @pytest.mark.parametrize("law", jdfl.testing.LAWS)
    def test_my_algorithm(law):
        jdfl.testing.check_algorithm(MyAlgorithm(lr=0.1), law)

No law knows whether an update is the paper's: compare it with a loop of your own.
"""

from jdfl.testing.law import LawBrokenError
from jdfl.testing.of_algorithms import (
    EXAMPLES,
    LAWS,
    NODES,
    PARAMETERS,
    ROUNDS,
    Case,
    check_algorithm,
    compilations,
    padded,
    small_network,
    small_problem,
)
from jdfl.testing.of_codecs import CODEC_LAWS, check_codec
from jdfl.testing.of_networks import NETWORK_LAWS, check_network
from jdfl.testing.of_problems import PROBLEM_LAWS, check_problem

__all__ = [
    "CODEC_LAWS",
    "EXAMPLES",
    "LAWS",
    "NETWORK_LAWS",
    "NODES",
    "PARAMETERS",
    "PROBLEM_LAWS",
    "ROUNDS",
    "Case",
    "LawBrokenError",
    "check_algorithm",
    "check_codec",
    "check_network",
    "check_problem",
    "compilations",
    "padded",
    "small_network",
    "small_problem",
]
