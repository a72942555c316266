"""What a newcomer reads first does what it says; `make docs-check` does all other pages."""

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.docs.test_code_blocks import apart, play

__all__ = ["apart"]


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "first-figure.md"], ids=lambda page: page.name)
def test_blocks_do_what_a_reader_would_see(page: Path) -> None:
    play(page, slow=False)
