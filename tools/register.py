"""The lists that follow from the files of `jdfl/algorithms`: `python -m tools.register` writes them.

These are the imports of `jdfl/algorithms/__init__.py`, the same names in `jdfl/__init__.pyi`, the spellings in
`docs/glossary.md`, and the numbers of methods and networks on the front pages. Then it measures the examples of new
methods for their pages (`docs/_site/costs.py`), and writes the data of the command line (`jdfl/cli/schema.json`), for
which a changed flag or help text needs it too, and the list of public names (`tests/public_names.txt`).
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from jdfl.algorithms import REGISTRY
from jdfl.cli import describing, schema
from jdfl.config.families import FAMILIES
from jdfl.events import REGISTRY as ASYNCHRONOUS
from jdfl.network import Network

ROOT = Path(__file__).resolve().parents[1]
FRONT = (ROOT / "README.md", ROOT / "docs" / "index.md")
GLOSSARY = ROOT / "docs" / "glossary.md"
PACKAGE, STUB = ROOT / "jdfl" / "algorithms" / "__init__.py", ROOT / "jdfl" / "__init__.pyi"


def imported(file: Path, lines: dict[str, str]) -> None:
    """Add the lines that import these names to a file, where they are missing; ruff sorts them."""
    text = file.read_text(encoding="utf-8")
    known = re.findall(r"^from \S+ import (\w+) as", text, re.MULTILINE)
    new = "".join(f"{line}\n" for name, line in lines.items() if name not in known)
    file.write_text(re.sub(r"^(?=from \S+ import \w+ as)", new, text, count=1, flags=re.MULTILINE), encoding="utf-8")


def spell() -> None:
    """Add the methods to the list of spellings in the glossary, in the order of their titles."""
    text = GLOSSARY.read_text(encoding="utf-8")
    rows = re.findall(r"^- [^`\n]+: `\w+`, `[\w-]+`\n", text, re.MULTILINE)
    spelt = {re.findall(r"`([\w-]+)`", row)[1]: row for row in rows}
    spelt |= {name: f"- {kind().title}: `{kind.__name__}`, `{name}`\n" for name, kind in REGISTRY.items()}
    block = "".join(sorted(spelt.values(), key=str.lower))
    GLOSSARY.write_text(text.replace("".join(rows), block), encoding="utf-8")


COUNTED = {  # in README.md and on the front page
    r"\d+(?= methods\b)": len(REGISTRY) + len(ASYNCHRONOUS),
    r"\d+(?= kinds, fixed\b)": len(FAMILIES[Network].kinds),
}


def counted(text: str) -> str:
    """The text with the numbers of methods and networks that are registered."""
    for pattern, number in COUNTED.items():
        text = re.sub(pattern, str(number), text)
    return text


def main() -> None:
    """Write all of them; what follows from the lists is written by programs that read them again."""
    names = {kind.__name__: kind.__module__ for kind in REGISTRY.values()}
    imported(PACKAGE, {name: f"from {module} import {name} as {name}" for name, module in names.items()})
    imported(STUB, {name: f"from .algorithms import {name} as {name}" for name in names})
    spell()
    for page in FRONT:
        page.write_text(counted(page.read_text(encoding="utf-8")), encoding="utf-8")
    text = json.dumps(describing.schema(), indent=1, ensure_ascii=False)
    schema.FILE.write_text(f"{text}\n", encoding="utf-8")
    costs = ROOT / "docs" / "_site" / "costs.py"
    unmeasured = set(REGISTRY) - set(json.loads(costs.with_suffix(".json").read_text(encoding="utf-8")))
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    commands = [
        ["-m", "ruff", "check", "--quiet", "--fix", "--select=I", str(PACKAGE), str(STUB)],
        ["-m", "ruff", "format", "--quiet", str(PACKAGE), str(STUB)],
        *([str(costs), *sorted(unmeasured)] for _ in range(bool(unmeasured))),
        ["-m", "tests.docs.test_public_names"],
    ]
    for words in commands:
        subprocess.run([sys.executable, *words], cwd=ROOT, env=env, check=True)


if __name__ == "__main__":
    main()
