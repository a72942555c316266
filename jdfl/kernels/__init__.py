"""Kernels of our own, in Pallas for GPUs: one file each, with the form that XLA compiles as reference and fallback.

They are used only in runs that ask for them (`jdfl.Options(kernels=True)`), and only where they fit: each file says
which types and shapes it takes. Several devices, and derivatives, have the other form.
"""

from jdfl.kernels.calls import PREFIX as PREFIX
