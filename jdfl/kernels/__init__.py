"""A kernel of our own, in Pallas for GPUs, with the form that XLA compiles as reference and fallback.

It is used only in runs that ask for kernels (`jdfl.Options(kernels=True)`), and only where it fits: its file says which
types and shapes it takes. Several devices, and derivatives, have the other form.
"""
