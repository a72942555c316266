"""Audits: what an attack can tell from what an algorithm shows, beside what is accounted for."""

from jdfl.auditing.result import Audit
from jdfl.auditing.run import audit

__all__ = ["Audit", "audit"]
