"""What becomes of a comparison: a figure, a folder, a page, and the short text that a prompt or a notebook shows."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from jdfl.base.arguments import checked

if TYPE_CHECKING:
    from jdfl.lab.drawing import Drawn


class Outputs:
    """Figures, files and short texts of a comparison."""

    @checked
    def plot(
        self,
        x: str | Sequence[str] | None = None,
        y: str | None = None,
        *,
        marks: bool = True,
        ax: Any = None,
        width: Literal["column", "page"] | float = "column",
        height: float | None = None,
        floor: float | None = None,
    ) -> "Drawn":
        """Draw a metric against what it cost: `fig, ax = comparison.plot(x="bytes")`.

        A line is the mean over the trials, with a band that the legend explains, of the runs whose values were chosen
        at the largest budget of that amount. Runs that diverged are left out. Nothing is written: `fig.savefig` does.

        Args:
            x: An amount, as for `at`, or a list of them; None: the one that tuning compared at.
            y: The metric; None: the measure.
            marks: Whether the legend shows every `mark` and counts runs that diverged, and the axis names the budget
                of tuning. Without them, say so in the caption.
            ax: As for `Result.plot`, and so are `width`, `height` and `floor`.
            width: "column", "page" or inches.
            height: Inches, or None.
            floor: The accuracy of the reference solution, below which nothing is drawn; None: for suboptimality, that
                of the trusted solver.

        Returns:
            The figure and its Axes, an array of Axes for a list of amounts.

        Raises:
            ValueError: For an unknown amount or metric, a bad size, and another number of Axes than amounts.
        """
        from jdfl.lab import plots  # matplotlib, for those who draw

        return plots.of_comparison(cast(Any, self), x, y, marks=marks, ax=ax, width=width, height=height, floor=floor)

    @checked
    def save(self, folder: str | Path, *, config_yaml: str = "", overwrite: bool = False) -> Path:
        """Write the comparison into a folder, whole or not at all; `jdfl.load` reads it back.

        The folder has comparison.json and comparison.npz for `jdfl.load`, curves.csv, curves.parquet, tuning.csv,
        equal_costs.csv, table.txt, table.md, table.tex, figure.png, figure.pdf, report.html, environment.json and
        provenance.json. Algorithm objects are not stored.

        Args:
            folder: Where to write; it is made, with the folders above it. An empty one may be there already.
            config_yaml: The settings as YAML, for config.yaml and the page; empty: neither has them.
            overwrite: Whether a folder with content is replaced; otherwise FileExistsError.

        Returns:
            The path of the folder.
        """
        from jdfl.lab.folder import write_comparison

        return write_comparison(cast(Any, self), folder, config_yaml, overwrite=overwrite)

    @checked
    def report(self, path: str | Path) -> Path:
        """Write one HTML page about the comparison, a single file that loads nothing from elsewhere; returns the path.

        It has tables, curves, tuning and privacy. The file at `path` is replaced if it is there.
        """
        from jdfl.lab.folder import write_page

        return write_page(cast(Any, self), path)

    def __repr__(self) -> str:
        from jdfl.lab import shown

        return shown.of_comparison(cast(Any, self))

    def _repr_html_(self) -> str:
        from jdfl.lab import shown

        return shown.html_of_comparison(cast(Any, self))
