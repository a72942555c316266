"""Networks: who hears whom in a round, with which weights, and the sums over it.

What is public stands in __init__.pyi; a module is imported when something of it is first asked for.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
