"""The lab: comparisons, studies, tables, figures and pages, and progress during a run.

It uses the library, which does not depend on it: within jdfl only the command line imports it. A module is imported
when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
