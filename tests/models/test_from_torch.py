"""Networks of torch have torch's outputs and gradients here, and what would differ is refused by name."""

import numpy as np
import pytest

import jdfl
from tests.refused import refused

torch = pytest.importorskip("torch")
nn = torch.nn


class Block(nn.Module):
    """Layers that are used twice, arithmetic, a parameter of its own, and a shape that is read."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(2, 4, 3, padding="same"), nn.GroupNorm(2, 4), nn.ReLU(inplace=True))
        self.conv = nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False)
        self.scale = nn.Parameter(torch.full((4, 1, 1), 0.7))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.out = nn.Linear(4 * 4 * 4, 3)

    def forward(self, x):
        h = self.enter(x)
        h = h + self.scale * torch.tanh(self.conv(self.conv(h))) / 2
        h = nn.functional.avg_pool2d(self.pool(h), 1) - 0.1 * h.mean((2, 3), keepdim=True)
        return self.out(torch.cat([h], 1).view(x.size(0), -1))


def words() -> nn.Module:
    layers = [nn.Embedding(9, 4, padding_idx=2), nn.LayerNorm(4), nn.GELU(), nn.Flatten(), nn.Dropout(0.0)]
    return nn.Sequential(*layers, nn.Linear(20, 5), nn.Sigmoid(), nn.Identity(), nn.Linear(5, 3))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), (6,)),
    "images": (Block, (2, 8, 8)),
    "words": (words, (5,)),
    "pools": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3, stride=2, dilation=2, padding=1),
            nn.AvgPool2d(2, padding=1),
            nn.Flatten(1),
            nn.Linear(8, 3),
        ),
        (1, 8, 8),
    ),
}


def data(name: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = (24, *MODELS[name][1])
    X = rng.integers(0, 9, shape) if name == "words" else rng.normal(size=shape).astype(np.float32)
    return X, np.arange(24) % 3


@pytest.mark.parametrize("name", MODELS)
def test_the_first_step_is_torchs(name):
    torch.manual_seed(0)
    model = MODELS[name][0]()
    X, y = data(name)
    problem = jdfl.from_model(model, X, y, nodes=2, test_fraction=0)
    rows, labels = (np.asarray(leaf) for leaf in problem.data)
    result = jdfl.run(jdfl.DPSGD(lr=1.0), problem, jdfl.network.complete(2), steps=1)
    before = {name: leaf.detach().numpy().copy() for name, leaf in model.named_parameters()}
    assert set(problem.model.paths) == set(before)
    for node in range(2):
        inputs = torch.tensor(rows[node])
        outputs = model(inputs.long() if name == "words" else inputs)
        np.testing.assert_allclose(
            problem.scores(problem.start, rows[node]), outputs.detach().numpy(), rtol=1e-5, atol=1e-5
        )
        loss = nn.functional.cross_entropy(outputs, torch.tensor(labels[node]).long())
        loss.backward()
    mean = {name: leaf.grad.numpy() / 2 for name, leaf in model.named_parameters()}
    found = problem.model.unravel(result.params.mean(axis=0))
    for path, gradient in mean.items():
        np.testing.assert_allclose(before[path] - np.asarray(found[path]), gradient, rtol=1e-5, atol=1e-5)
    model.load_state_dict({path: torch.tensor(np.asarray(leaf)) for path, leaf in found.items()})  # the way back
    assert float(np.abs(mean["0.weight" if name != "images" else "conv.weight"]).max()) > 1e-4


def test_names_are_shared_and_equal_networks_are_equal():
    X, y = data("mlp")
    one, two = (jdfl.from_model(MODELS["mlp"][0](), X, y, nodes=2, shared=("0.*",)) for _ in range(2))
    assert set(one.model.paths[:2]) == {"0.weight", "0.bias"}
    assert one.model.n_shared == 56
    assert one.model == two.model
    assert "Sequential" in one.model.name


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 3))
    model[0].bias.requires_grad_(False)
    return model


class Odd(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.inner, self.register = nn.Sequential(nn.Linear(6, 3)), forward
        self.register_buffer("fixed", torch.ones(3))

    def forward(self, x):
        return self.register(self, self.inner(x))


def test_what_is_not_the_same_in_jax_is_refused_by_name():
    X, y = data("mlp")
    linear = nn.Linear(6, 3)
    wrong = {
        "layer 1 (torch.nn.modules.dropout.Dropout)": nn.Sequential(linear, nn.Dropout(0.5)),
        "layer 1 (torch.nn.modules.batchnorm.BatchNorm1d)": nn.Sequential(linear, nn.BatchNorm1d(3)),
        "layer 1.0 (torch.nn.modules.activation.Hardtanh)": nn.Sequential(linear, nn.Sequential(nn.Hardtanh())),
        "0.bias with requires_grad": frozen(),
        "operation cumsum": Odd(lambda self, x: x.cumsum(1)),
        "operation dropout": Odd(lambda self, x: nn.functional.dropout(x, 0.5, self.training)),
        "fixed": Odd(lambda self, x: x + self.fixed),
        "inplace=False": Odd(lambda self, x: nn.functional.relu(x.view(-1, 3), inplace=True) + x),
        "several outputs": Odd(lambda self, x: (x, x)),
        "torch.fx": Odd(lambda self, x: x if x.sum() > 0 else -x),
    }
    for named, model in wrong.items():
        with refused(named):
            jdfl.from_model(model, X, y, nodes=2)
    with refused("0 (torch.nn.modules.sparse.Embedding)"):
        jdfl.from_model(words(), data("words")[0] + 1, y, nodes=2)
    with refused(standardise=True):
        jdfl.from_model(Block(), *data("images"), nodes=2, standardise=True)
