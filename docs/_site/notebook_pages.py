"""The notebooks as pages: executed when the site is built, with their outputs, and to be downloaded as .ipynb."""

import base64
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parents[2] / "notebooks"
_SECONDS = 600  # of one cell, before it counts as stuck


@dataclass
class Executed:
    """A notebook that has run: its page, its pictures by name, and the notebook with its outputs."""

    name: str
    markdown: str = ""
    pictures: dict[str, bytes] = field(default_factory=dict)
    ipynb: str = ""


def executed(name: str) -> Executed:
    """Run a notebook in an empty folder; raises CellExecutionError where a cell fails.

    Args:
        name: Its name in the folder `notebooks`, without the ending.
    """
    notebook = jupytext.read(FOLDER / f"{name}.py")
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            timeout=_SECONDS,
            resources={"metadata": {"path": folder}},
            extra_arguments=["--log-level=ERROR"],  # the kernel warns of its sockets, which are local
        ).execute()
    made = Executed(name, ipynb=nbformat.writes(notebook))
    parts = [_cell(cell, made) for cell in notebook.cells]
    title, _, rest = "\n\n".join(parts).partition("\n")
    made.markdown = f"{title}\n\n[Download this notebook, with its outputs]({name}.ipynb){{ download }}\n\n{rest}\n"
    return made


def _cell(cell: NotebookNode, made: Executed) -> str:
    """A cell with its outputs as Markdown; pictures go into `made`."""
    if cell.cell_type == "markdown":
        return str(cell.source)
    shown = [f"```python\n{cell.source}\n```"]
    shown += [text for output in cell.outputs if (text := _output(output, made))]
    return "\n\n".join(shown)


def _output(output: NotebookNode, made: Executed) -> str:
    if output.output_type == "stream":
        return _text(output.text) if output.name == "stdout" else ""
    data = output.get("data", {})
    if "image/png" in data:
        place = f"{made.name}-{len(made.pictures) + 1}.png"
        made.pictures[place] = base64.b64decode(data["image/png"])
        return f"![Figure of the cell above]({place})"
    if output.output_type == "display_data":  # the progress of a run
        return ""
    if "<table" in data.get("text/html", ""):
        table = re.sub(r'<table[^>]*class="dataframe"[^>]*>', "<table>", data["text/html"])
        return f'<div class="output" markdown="0">\n{table}\n</div>'
    return _text(data.get("text/plain", ""))


def _text(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""
