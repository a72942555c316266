"""Audits: what an attack can tell from what an algorithm shows, beside what is accounted for."""

from jdfl.audit.result import Audit
from jdfl.audit.run import audit

__all__ = ["Audit", "audit"]
