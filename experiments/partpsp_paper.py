"""Numbers of the DPPS paper's Tables II to IV and of the study, which repeated the perceptron's with one seed."""

from typing import NamedTuple

NETWORKS = ("EXP", "4-Out", "6-Out", "8-Out")
MODELS = ("mlp", "resnet", "vit")  # each over NETWORKS


class Cell(NamedTuple):
    """The position of a number in Table II or IV."""

    model: str
    network: str
    method: str
    level: float | None = None  # b; None: no noise


_ACCURACY = """
PartPSP-1 1 41.57 40.63 38.78 43.19 82.70 82.48 82.97 82.63 33.60 37.00 45.79 66.97
PartPSP-1 2 44.67 46.25 60.03 81.00 82.85 82.54 82.10 81.90 51.63 64.33 74.97 76.76
PartPSP-1 3 48.08 63.51 80.12 88.87 82.73 81.86 82.06 82.59 71.78 76.24 76.72 76.98
PartPSP-1 - 89.66 89.71 89.74 89.75 88.01 88.17 88.01 88.14 76.98 77.04 77.03 77.00
PartPSP-2 1 21.66 25.42 28.09 22.03 69.14 81.13 80.95 81.65 18.55 18.41 17.33 22.10
PartPSP-2 2 23.33 24.78 25.70 28.68 80.17 81.11 81.29 80.93 21.49 24.74 28.10 49.24
PartPSP-2 3 18.84 24.07 34.02 67.26 81.60 80.75 82.22 81.37 29.47 40.79 54.65 71.34
PartPSP-2 - 88.85 88.91 88.95 88.99 87.33 87.49 87.37 87.42 78.45 78.54 78.50 78.48
SGPDP 1 29.23 26.68 33.23 22.38 66.38 72.36 72.58 72.85 10.46 10.39 11.91 8.70
SGPDP 2 24.89 32.39 25.91 28.31 71.77 73.26 72.65 72.63 10.86 7.61 14.39 41.08
SGPDP 3 29.78 26.94 29.34 45.63 71.65 72.12 71.01 72.83 19.43 29.55 51.64 68.96
SGPDP - 81.55 81.64 81.62 81.62 90.18 90.31 89.98 90.16 78.65 78.47 78.48 78.46
PEDFL 1 38.47 34.81 44.72 44.37 31.32 38.71 55.81 49.09 9.27 10.28 10.80 9.83
PEDFL 2 42.94 43.55 44.41 44.16 53.66 50.11 51.97 71.16 11.71 12.27 15.40 17.34
PEDFL 3 44.17 44.40 44.24 44.22 51.30 48.80 49.43 73.44 24.93 32.18 36.24 45.79
PEDFL - 84.36 84.36 84.31 84.25 72.53 72.22 71.65 72.61 75.46 74.17 75.48 77.37
"""
_SECONDS = """
SGP - 68.33 68.85 70.12 70.89 874.5 1260 1647 2034 226.3 253.5 281.7 318.3
SGPDP 3 78.39 78.93 80.92 81.92 1120 1504 1888 2275 275.9 293.3 322.0 364.7
PartPSP-1 3 74.64 74.36 75.68 76.22 145.7 147.6 154.4 159.4 138.1 137.9 138.1 140.2
"""


Numbers = dict[tuple[str, str, str, float | None], float]  # by Cell


def _cells(text: str) -> Numbers:
    found: Numbers = {}
    for line in text.strip().splitlines():
        method, level, *values = line.split()
        b = None if level == "-" else float(level)
        places = [(model, network) for model in MODELS for network in NETWORKS]
        found |= {Cell(*place, method, b): float(value) for place, value in zip(places, values, strict=True)}
    return found


ACCURACY = _cells(_ACCURACY)  # Table II, per cent
SECONDS = _cells(_SECONDS)  # Table IV
ESTIMATED = {  # Table III, per cent: model, network, shared layers: real sensitivity, Eq. 22
    ("mlp", "2-Out", 1): (88.50, 85.42),
    ("mlp", "2-Out", 2): (60.53, 52.09),
    ("mlp", "EXP", 1): (89.50, 84.88),
    ("mlp", "EXP", 2): (61.14, 53.99),
    ("resnet", "2-Out", 1): (82.37, 82.28),
    ("resnet", "2-Out", 2): (80.83, 80.52),
    ("resnet", "EXP", 1): (82.40, 81.56),
    ("resnet", "EXP", 2): (81.21, 81.10),
}
_STUDY = {  # the perceptron, per cent, at b = 1, 2, 3
    ("4-Out", "PartPSP-1"): (89.9, 90.2, 90.6),
    ("4-Out", "PartPSP-2"): (89.0, 89.7, 90.0),
    ("EXP", "PartPSP-1"): (89.9, 90.0, 90.3),
    ("EXP", "PartPSP-2"): (88.9, 89.4, 89.9),
}
_STUDY_WITHOUT_NOISE = {"PartPSP-1": 91.3, "PartPSP-2": 91.3, "SGPDP": 92.0}
STUDY: Numbers = {
    ("mlp", network, method, b): value
    for (network, method), values in _STUDY.items()
    for b, value in zip((1.0, 2.0, 3.0), values)
}
STUDY |= {
    ("mlp", network, method, None): value
    for network in ("EXP", "4-Out")
    for method, value in _STUDY_WITHOUT_NOISE.items()
}
STUDY_ALONE = 90.9  # LocalOnly


class Distances(NamedTuple):
    """Real distances in a file that was published with the code."""

    first: float  # round 0
    peak: float
    mean: float
    later: float  # mean without the first four rounds


FIGURE2 = {  # shared, network: 120 rounds, Eq. 22 never too small
    ("1 layer", "2-Out"): Distances(5.81, 263.1, 64.40, 64.84),
    ("1 layer", "EXP"): Distances(5.81, 252.4, 63.06, 63.51),
    ("2 layers", "2-Out"): Distances(1.69, 899.0, 163.7, 166.7),
    ("2 layers", "EXP"): Distances(1.69, 894.6, 150.0, 152.6),
}
FIGURE3 = {  # shared: RAS, without the first four rounds, by degree; 120 rounds, clip 200
    "1 layer": {2: (50.18, 49.45), 4: (35.13, 34.57), 6: (24.38, 24.02), 8: (14.50, 14.32), 10: (5.72, 5.70)},
    "2 layers": {2: (91.47, 91.24), 4: (61.53, 61.21), 6: (42.05, 41.89), 8: (21.88, 21.78), 10: (2.37, 2.39)},
    "all layers": {2: (1470, 1470), 4: (1006, 1005), 6: (634.3, 632.6), 8: (321.7, 320.5), 10: (16.40, 16.48)},
}
FIGURE4 = {  # network: RAS of the first 20 rounds, one layer, N = 10 to 50
    "EXP": (61.86, 61.47, 63.01, 63.08, 62.58),
    "2-Out": (63.18, 62.78, 64.30, 64.77, 64.62),
    "4-Out": (44.00, 45.16, 47.12, 46.61, 46.80),
    "6-Out": (29.72, 37.89, 38.89, 38.03, 38.52),
    "8-Out": (17.50, 32.66, 34.07, 33.80, 33.83),
}
TABLE3 = {  # network, shared: mean real distances of 720 rounds with the real sensitivity and with Eq. 22
    ("2-Out", 1): (11.16, 18.36),
    ("2-Out", 2): (64.03, 95.83),
    ("EXP", 1): (10.34, 18.07),
    ("EXP", 2): (63.19, 93.74),
}
