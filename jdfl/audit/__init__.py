"""Audits: what an attack can tell from what an algorithm shows, beside what is accounted for."""

from jdfl.audit.attack import Attack, attack
from jdfl.audit.run import audit
from jdfl.audit.result import Audit

__all__ = ["Attack", "Audit", "attack", "audit"]
