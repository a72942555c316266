"""Write a Markdown table of the installed datasets with natural clients: rows, clients, versions and hashes.

python -m tools.natural_table [FILE]
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

from jdfl.problems import natural_data, places


def table() -> Any:
    """The statistics of all datasets as a DataFrame, a row for each and every kind of clients.

    Raises OSError where the package is not installed.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* rows are dropped")  # there is a column for it
        return pd.DataFrame(
            [
                natural_data.natural(name, clients=kind).statistics() | {"clients": kind}
                for name in places.NATURAL
                for kind in natural_data.kinds(name)
            ]
        )


def markdown(found: Any) -> str:
    """A table of Markdown, with numbers as people read them and the first 12 characters of hashes."""
    found = found.assign(sha256=found["sha256"].str[:12])
    cells = [
        [f"{one:,}" if isinstance(one, int) else f"{one:g}" if isinstance(one, float) else str(one) for one in row]
        for row in found.astype(object).itertuples(index=False)
    ]
    lines = [list(found.columns), ["---"] * found.shape[1], *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    text = markdown(table())
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
