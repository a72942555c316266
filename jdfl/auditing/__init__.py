"""Audits: what an attack on an algorithm's messages reveals, compared with the accounted privacy."""

from jdfl.auditing.attack import Verdict
from jdfl.auditing.bits import BitAudit, audit_bits
from jdfl.auditing.one_run import OneRun, audit_one_run
from jdfl.auditing.run import Audit, audit

__all__ = ["Audit", "BitAudit", "OneRun", "Verdict", "audit", "audit_bits", "audit_one_run"]
