"""The lists that follow from the files of `jdfl/algorithms`: `python -m tools.register` writes them.

These are the imports and `__all__` of `jdfl/algorithms/__init__.py`, the same names in `jdfl/__init__.pyi`, the
spellings in `docs/glossary.md`, and the numbers of methods and networks on the front pages. Then it measures the
examples of new methods for their pages (`docs/_site/costs.py`), and writes the data of the command line
(`jdfl/cli/schema.json`), for which a changed flag or help text needs it too, and the list of public names
(`tests/public_names.txt`).
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


def in_order(names: set[str]) -> list[str]:
    """As ruff sorts members: constants, classes, then the others."""
    return sorted(names, key=lambda name: (0 if name.isupper() else 1 if name[0].isupper() else 2, name))


def listed(text: str, start: str, end: str, names: set[str], quote: str = "") -> str:
    """The text with these names added to the list between `start` and `end`, one to a line."""
    head, _, rest = text.partition(start)
    body, _, tail = rest.partition(end)
    found = {name.strip().strip('"') for name in body.split(",") if name.strip()}
    lines = "".join(f"    {quote}{name}{quote},\n" for name in in_order(found | names))
    return f"{head}{start}\n{lines}{end}{tail}"


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
    text = PACKAGE.read_text(encoding="utf-8")
    imports = {line for line in text.splitlines() if line.startswith("from jdfl.")}
    known = {name for line in imports for name in line.partition(" import ")[2].split(", ")}
    new = {kind.__name__: kind.__module__ for kind in REGISTRY.values() if kind.__name__ not in known}
    modules: dict[str, set[str]] = {}
    for line in imports:
        module, _, names = line.removeprefix("from ").partition(" import ")
        modules.setdefault(module, set()).update(names.split(", "))
    for name, module in new.items():
        modules.setdefault(module, set()).add(name)
    made = "\n".join(f"from {module} import {', '.join(in_order(names))}" for module, names in sorted(modules.items()))
    text = re.sub(r"(?:from jdfl\.\S+ import .*\n)+", made + "\n", text, count=1)
    PACKAGE.write_text(listed(text, "__all__ = [", "]", set(new), '"'), encoding="utf-8")
    spell()
    for page in FRONT:
        page.write_text(counted(page.read_text(encoding="utf-8")), encoding="utf-8")
    stub = STUB.read_text(encoding="utf-8")
    public = {kind.__name__ for kind in REGISTRY.values()} - {"CEPSPaper"}
    stub = listed(stub, "from .algorithms import (", ")", public)
    STUB.write_text(listed(stub, "__all__ = [", "]", public, '"'), encoding="utf-8")
    text = json.dumps(describing.schema(), indent=1, ensure_ascii=False)
    schema.FILE.write_text(f"{text}\n", encoding="utf-8")
    costs = ROOT / "docs" / "_site" / "costs.py"
    unmeasured = set(REGISTRY) - set(json.loads(costs.with_suffix(".json").read_text(encoding="utf-8")))
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    commands = [
        ["-m", "ruff", "check", "--quiet", "--fix", "--select=I,RUF022", str(PACKAGE), str(STUB)],
        ["-m", "ruff", "format", "--quiet", str(PACKAGE), str(STUB)],
        *([str(costs), *sorted(unmeasured)] for _ in range(bool(unmeasured))),
        ["-m", "tests.docs.test_public_names"],
    ]
    for words in commands:
        subprocess.run([sys.executable, *words], cwd=ROOT, env=env, check=True)


if __name__ == "__main__":
    main()
