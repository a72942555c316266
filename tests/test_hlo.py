"""Counting kernels and bytes in compiled programs: on a text whose costs are known by hand, and on what is unknown."""

import pytest

from benchmarks import hlo

CACHE = 40e6
N = 4_000_000


def cost(text):
    found = hlo.Text("HloModule jit_f, is_scheduled=true\n\n" + text, CACHE)
    return found.cost(found.entry, lambda loop: 1.0, lambda one: one.bytes)


V = f"f32[{N}]{{0}}"
SAXPY = f"""%fused (p0: {V}, p1: {V}) -> {V} {{
  %p0 = {V} parameter(0)
  %p1 = {V} parameter(1)
  %m = {V} multiply(%p0, %p0)
  ROOT %s = {V} add(%m, %p1)
}}

ENTRY %main (p0: {V}, p1: {V}) -> {V} {{
  %p0 = {V} parameter(0)
  %p1 = {V} parameter(1)
  ROOT %f = {V} fusion(%p0, %p1), kind=kLoop, calls=%fused
}}
"""


def test_bytes_of_a_kernel():
    found = cost(SAXPY)
    assert found.launches == 1
    assert found.bytes == pytest.approx(3 * 4 * N, rel=1e-3)


def test_what_is_unknown_is_an_error():
    for text, named in (
        (SAXPY.replace("multiply(", "frobnicate("), "frobnicate"),
        (SAXPY.replace("f32[", "f19["), "f19"),
        (
            f"ENTRY %main (p0: {V}) -> {V} {{\n  %p0 = {V} parameter(0)\n  ROOT %r = {V} all-reduce(%p0)\n}}\n",
            "devices",
        ),
    ):
        with pytest.raises(hlo.UnknownError) as error:
            cost(text)
        assert named in str(error.value)
