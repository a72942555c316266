"""Noise mechanisms and what may be said of them."""

from jdfl.privacy.guarantee import NO_NOISE, Guarantee
from jdfl.privacy.mechanisms import Gaussian, GaussianEvent, Mechanism, classical_gaussian

__all__ = ["NO_NOISE", "Gaussian", "GaussianEvent", "Guarantee", "Mechanism", "classical_gaussian"]
