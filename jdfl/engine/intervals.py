"""The interval of a share that is measured on a test set."""

import numpy as np
from scipy.special import ndtri

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.problems import Problem


@checked
def wilson(share: float, examples: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of E. B. Wilson (1927) for the accuracy on all data, from that on test examples drawn at random.

    It says how well a test set measures one classifier. It does not say how the accuracy varies from trial to trial:
    that is the interval of the mean over trials.
    """
    checks.whole(1, examples=examples)
    checks.fraction(confidence=confidence)
    if not 0 <= share <= 1 or confidence == 1:
        name, value = ("confidence", confidence) if confidence == 1 else ("share", share)
        checks.refuse("0 <= share <= 1 and confidence < 1", name, value)
    z = float(ndtri(0.5 + confidence / 2))
    middle = share + z * z / (2 * examples)
    width = z * np.sqrt(share * (1 - share) / examples + (z / (2 * examples)) ** 2)
    low, high = ((middle + side * width) / (1 + z * z / examples) for side in (-1, 1))
    return max(0.0, float(low)), min(1.0, float(high))


def examples_of_accuracy(problem: Problem) -> int | None:
    """How many examples the accuracy of a run is a share of; None where it is no such share.

    That is so without a labelled test set, and where nodes predict with their own parameters, so that the accuracy
    is a mean over nodes.
    """
    if problem.test is None or problem.personal or type(problem).scores is Problem.scores:
        return None
    return int(problem.test[1].shape[0])
