"""Where Network Newton ends: at the minimum of its penalised objective, which D-PSGD approaches."""

import numpy as np

import jdfl
from tests.field.row import M, weighted
from tests.field.test_field import STRONG, long


def test_the_limit_is_that_of_dpsgd_whose_step_size_is_the_penalty():
    params, _ = long(jdfl.NetworkNewton(alpha=0.05, K=2), 200)
    A, b = (np.asarray(leaf, np.float64) for leaf in STRONG().data)
    q, n = A.shape[1:]
    H = np.einsum("iqn,iqp->inp", A, A) / q
    system = np.kron(np.eye(M) - weighted(), np.eye(n))
    for i in range(M):
        system[i * n : (i + 1) * n, i * n : (i + 1) * n] += 0.05 * H[i]
    limit = np.linalg.solve(system, 0.05 * (np.einsum("iqn,iq->in", A, b) / q).ravel()).reshape(M, n)
    np.testing.assert_allclose(params[-1], limit, rtol=1e-9, atol=1e-10)
    assert np.abs(limit - limit.mean(axis=0)).max() > 1e-3
