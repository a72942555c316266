"""The lab: comparisons, studies, folders of runs, tables, figures and pages, and what is told while a run goes on.

It uses the library, which knows nothing of it: of jdfl, the command line alone imports it. A module is imported when it
is first asked for.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
