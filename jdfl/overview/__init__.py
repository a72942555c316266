"""One page about one run or several, from their folders: `jdfl report`."""

from jdfl.overview.build import write_overview
from jdfl.overview.read import Entry, read

__all__ = ["Entry", "read", "write_overview"]
