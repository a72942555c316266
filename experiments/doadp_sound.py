"""DO-ADP with sound noise, compared with the noise that its paper's theorem requires.

Run `python -m experiments.doadp_sound [--quick] [--seeds N] [--records Q | --data NAME] [--out DIR]`; ten minutes on
two cores.

Sound means: the whole sensitivity of a clipped gradient, whichever entries are sent; activity is public, so a node
spends privacy in the rounds in which it is active; every release uses one secret record of q; all are composed by PLD.
That takes several times less noise than the theorem's constants at its own epsilon = .01, more at epsilon = 1, and the
same for every k / d. So sparser messages buy no privacy, and less activity only what fewer releases save.
"""

from experiments import doadp_common as common
from experiments.common import Made, Options, Row, experiment, row
from experiments.doadp_common import COLUMNS
from experiments.doadp_figure2 import EPSILONS, collect, draw

NAME = "doadp_sound"


def levels(here: common.Task, seeds: int) -> list[Row]:
    rows = []
    for epsilon in EPSILONS:
        always = common.calibrated(here, 1.0, 1.0, epsilon, "sound", seeds)[0]
        for column in COLUMNS:
            paper, sound = (common.calibrated(here, *column, epsilon, how, seeds)[0] for how in ("paper", "sound"))
            case = f"epsilon = {epsilon:g}, {common.name(*column)}"
            told = {"Theorem 1, noise / 2 G": paper, "sound, noise / 2 G": sound, "Theorem 1 / sound": paper / sound}
            told["sound, noise saved"] = 1 - sound / always
            rows += [row(case, name, None, [value]) for name, value in told.items()]
    return rows


@experiment(few=1, flags=common.FLAGS)
def main(chosen: Options) -> Made:
    here = common.chosen_task(chosen)
    noise = levels(here, chosen.seeds)
    rows, curves, _ = collect(here, chosen.seeds, "sound")
    tables = {
        f"{here.problem.name}: noise at the same epsilon": noise,
        f"{here.problem.name}, sound noise: f(average) - f* (study under the paper's noise, and ours)": [
            one for one in rows if "noise / 2 G" not in one.case
        ],
    }
    return Made(tables, draw(here, curves, f"one record replaced, delta = {common.DELTA:g}, all messages"))
