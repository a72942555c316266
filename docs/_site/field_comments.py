"""Comments next to fields are their documentation in the reference: fields of this library have no docstrings."""

from pathlib import Path
from typing import Any

import griffe
from algorithm_fields import comments


class FieldComments(griffe.Extension):
    """Gives every field without a docstring the comment at the end of its line as one."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[Path, dict[int, str]] = {}

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Look the comment up by the line that the field ends on."""
        file, line = attr.filepath, attr.endlineno
        if attr.docstring is not None or line is None or not isinstance(file, Path) or file.suffix != ".py":
            return
        if file not in self._files:
            self._files[file] = comments(file.read_text(encoding="utf-8"))
        said = self._files[file].get(line)
        if said:
            attr.docstring = griffe.Docstring(said, lineno=line, endlineno=line, parent=attr)
