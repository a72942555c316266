"""Audits: what an attack on an algorithm's messages reveals, compared with the accounted privacy."""

from jdfl.auditing.bits import audit_bits
from jdfl.auditing.one_run import audit_one_run
from jdfl.auditing.result import Audit
from jdfl.auditing.run import audit
from jdfl.auditing.verdicts import BitAudit, OneRun

__all__ = ["Audit", "BitAudit", "OneRun", "audit", "audit_bits", "audit_one_run"]
