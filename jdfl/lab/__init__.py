"""The lab: comparisons, studies, tables, figures and pages, and what nodes do in the course of a run.

It uses the library, which does not depend on it: within jdfl only the command line imports it.
"""
