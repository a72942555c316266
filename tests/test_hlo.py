"""Counting kernels and bytes in compiled programs: on texts whose costs are known by hand, and on planted mistakes."""

import pytest

from benchmarks import hlo

CACHE = 40e6
N = 4_000_000


def cost(text, turns=lambda loop: 1.0):
    found = hlo.Text("HloModule jit_f, is_scheduled=true\n\n" + text, CACHE)
    return found.cost(found.entry, turns, lambda one: one.bytes)


def fusion(body, parameters, result, kind="kLoop"):
    """A program of one fusion of parameters with these shapes."""
    lines = "\n".join(f"  %p{i} = {shape} parameter({i})" for i, shape in enumerate(parameters))
    heads = ", ".join(f"p{i}: {shape}" for i, shape in enumerate(parameters))
    names = ", ".join(f"%p{i}" for i in range(len(parameters)))
    entry = f"  ROOT %f = {result} fusion({names}), kind={kind}, calls=%fused"
    return (
        f"%fused ({heads}) -> {result} {{\n{lines}\n{body}\n}}\n\n"
        f"ENTRY %main ({heads}) -> {result} {{\n{lines}\n{entry}\n}}\n"
    )


V = f"f32[{N}]{{0}}"
SAXPY = fusion(f"  %m = {V} multiply(%p0, %p0)\n  ROOT %s = {V} add(%m, %p1)", [V, V], V)
M, D = 100_000, 8
GATHER = fusion(
    f"  %g = f32[{M},{D},1000]{{2,1,0}} gather(%p0, %p1), offset_dims={{2}}, collapsed_slice_dims={{0}}, "
    "start_index_map={0}, index_vector_dim=2, slice_sizes={1,1000}\n"
    "  %zero = f32[] constant(0)\n"
    f"  ROOT %r = f32[{M},1000]{{1,0}} reduce(%g, %zero), dimensions={{1}}, to_apply=%add",
    [f"f32[{M},1000]{{1,0}}", f"s32[{M},{D},1]{{2,1,0}}"],
    f"f32[{M},1000]{{1,0}}",
    "kInput",
)
ROWS = f"f32[{M},100]{{1,0}}"


def test_bytes_of_a_kernel():
    for text, expected in ((SAXPY, 3 * 4 * N), (GATHER, 4 * M * 1000 * (D + 1) + 4 * M * D)):
        found = cost(text)
        assert found.launches == 1
        assert found.bytes == pytest.approx(expected, rel=1e-3)


LOOP = """%body (t: (s32[], f32[1000])) -> (s32[], f32[1000]) {
  %t = (s32[], f32[1000]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[1000]{0} get-tuple-element(%t), index=1
  %j = s32[] add(%i, %i)
  %y = f32[1000]{0} add(%x, %x)
  ROOT %r = (s32[], f32[1000]{0}) tuple(%j, %y)
}

%condition (t.1: (s32[], f32[1000])) -> pred[] {
  %t.1 = (s32[], f32[1000]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%t.1), index=0
  %most = s32[] constant(100)
  ROOT %less = pred[] compare(%i.1, %most), direction=LT
}

ENTRY %main (s: (s32[], f32[1000])) -> (s32[], f32[1000]) {
  %s = (s32[], f32[1000]{0}) parameter(0)
  ROOT %w = (s32[], f32[1000]{0}) while(%s), condition=%condition, body=%bodyKNOWN
}
"""


def test_loops_count_as_often_as_they_turn():
    known = cost(LOOP.replace("KNOWN", ', backend_config={"known_trip_count":{"n":"100"}}'))
    assert (known.launches, known.syncs) == (200, 0)
    assert known.bytes == pytest.approx(100 * (8000 + 8))
    given = cost(LOOP.replace("KNOWN", ""), lambda loop: 7.0)
    assert (given.launches, given.syncs) == (2 * 7 + 8, 8)


def test_what_is_unknown_is_an_error():
    head = f"ENTRY %main (p0: {ROWS}) -> {ROWS} {{\n  %p0 = {ROWS} parameter(0)\n"
    for text, named in (
        (SAXPY.replace("multiply(", "frobnicate("), "frobnicate"),
        (SAXPY.replace("f32[", "f19["), "f19"),
        (head + f"  ROOT %r = {ROWS} all-reduce(%p0)\n}}\n", "devices"),
    ):
        with pytest.raises(hlo.UnknownError) as error:
            cost(text)
        assert named in str(error.value)
