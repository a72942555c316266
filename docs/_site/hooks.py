"""Hooks of MkDocs: pages of algorithms and notebooks, lists of public names, and formulas."""

import re
from typing import Any

import formulas
import notebook_pages
import pages
import robustness
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from benchmarks.page import aged
from jdfl.algorithms import GROUPS, REGISTRY

_NAMES = re.compile(r"^<!-- names: ([\w.]+) -->$", re.MULTILINE)
_TABLES = {
    "<!-- table of algorithms -->": pages.table,
    "<!-- table of groups -->": pages.groups,
    "<!-- table of attacks -->": robustness.table,
    "<!-- table of crashes -->": robustness.crashes,
}


def on_config(config: MkDocsConfig) -> None:
    """Put the algorithms' pages into the navigation by groups, after their index."""
    for entry in config.nav or []:
        if isinstance(entry, dict) and "Algorithms" in entry:
            for group, kinds in GROUPS.items():
                pages = [{REGISTRY[name].__name__: f"algorithms/{name}.md"} for name in kinds.split()]
                entry["Algorithms"].append({group.capitalize(): pages})


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of algorithms, and those of notebooks with their pictures."""
    for name in REGISTRY:
        files.append(File.generated(config, f"algorithms/{name}.md", content=pages.page(name)))
    for path in sorted(notebook_pages.FOLDER.glob("*.py")):
        made = notebook_pages.executed(path.stem)
        parts = {f"{made.name}.md": made.markdown, f"{made.name}.ipynb": made.ipynb, **made.pictures}
        for name, content in parts.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in tables, and after `<!-- names: MODULE -->` all that the module says is public."""
    filled = _levelled(_NAMES.sub(lambda found: _listed(found[1]), markdown))
    for place, table in _TABLES.items():
        filled = filled.replace(place, table()) if place in filled else filled
    return aged(filled)


def on_page_content(html: str, **_: Any) -> str:
    """Show formulas as MathML."""
    return formulas.mathml(html)


def _listed(module: str) -> str:
    """References to everything in `__all__`, or to what the module defines."""
    return "\n\n".join(f"::: {module}.{name}" for name in pages.listed(module))


def _levelled(markdown: str) -> str:
    """The page with references below its sections' heads, where it has sections."""
    head, *sections = re.split(r"(?m)^(?=## )", markdown)
    below = "\n    options:\n      heading_level: 3"
    return head + "".join(re.sub(r"(?m)^(::: \S+)$(?!\n    options:)", rf"\1{below}", one) for one in sections)
