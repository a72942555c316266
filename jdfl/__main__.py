"""`python -m jdfl` is `jdfl`."""

import sys

from jdfl.cli import main

sys.exit(main())
