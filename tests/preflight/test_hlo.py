"""Costs of small programs, each worked out by hand beside it."""

import pytest

from components.preflight.hlo import Collective, UncountableError, costs


def program(*lines, before=""):
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule m, is_scheduled=true\n{before}\nENTRY %main (a: f32[1]) -> f32[1] {{\n{body}\n}}\n"


def convolution(left, right, out, attributes):
    return program(
        f"%a = {left} parameter(0)",
        f"%b = {right} parameter(1)",
        f"ROOT %c = {out} convolution(%a, %b), {attributes}",
    )


@pytest.mark.parametrize(
    ("name", "left", "right", "out", "attributes", "flops"),
    [
        # As a matrix product: 2 * 64 * 256 * 128.
        ("dense", "f32[64,256]{1,0}", "f32[256,128]{1,0}", "f32[64,128]{1,0}", "dim_labels=bf_io->bf", 4_194_304),
        # No padding: 2 * 5 images * 26 * 26 places * 3 * 3 * 2 * 7.
        (
            *("valid", "f32[5,28,28,2]{0,3,2,1:T(8,128)}", "f32[3,3,2,7]{3,2,1,0}", "f32[5,26,26,7]{0,3,2,1}"),
            *("window={size=3x3}, dim_labels=b01f_01io->b01f", 2 * 5 * 26 * 26 * 9 * 2 * 7),
        ),
        # Padding by one: of the 4 outputs' 3 taps in a row, the first's first and the last's last are outside: 10.
        (
            *("same", "f32[1,4,4,1]{3,2,1,0}", "f32[3,3,1,1]{3,2,1,0}", "f32[1,4,4,1]{3,2,1,0}"),
            *("window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f", 2 * 10 * 10),
        ),
        # Stride 2 over 5 with 3 taps: 2 outputs a row, all inside.
        (
            *("strided", "f32[1,5,5,1]{3,2,1,0}", "f32[3,3,1,1]{3,2,1,0}", "f32[1,2,2,1]{3,2,1,0}"),
            *("window={size=3x3 stride=2x2}, dim_labels=b01f_01io->b01f", 2 * 6 * 6),
        ),
        # Elements 0, 2, 4 of 5 are there; 3 outputs with 3 taps from 0, 1, 2: 2 + 1 + 2.
        (
            *("holes", "f32[1,3,1]{2,1,0}", "f32[3,1,1]{2,1,0}", "f32[1,3,1]{2,1,0}"),
            *("window={size=3 lhs_dilate=2}, dim_labels=b0f_0io->b0f", 2 * 5),
        ),
        # Taps 0 and 2 apart by 2 over 5: outputs 0, 1, 2, each 2 taps.
        (
            *("dilated", "f32[1,5,1]{2,1,0}", "f32[2,1,1]{2,1,0}", "f32[1,3,1]{2,1,0}"),
            *("window={size=2 rhs_dilate=2}, dim_labels=b0f_0io->b0f", 2 * 6),
        ),
        # Each of 8 groups has one input and one output: 2 * 3 * 3 places * 3 * 3 * 8.
        (
            *("depthwise", "f32[1,5,5,8]{3,2,1,0}", "f32[3,3,1,8]{3,2,1,0}", "f32[1,3,3,8]{3,2,1,0}"),
            *("window={size=3x3}, dim_labels=b01f_01io->b01f, feature_group_count=8", 2 * 9 * 9 * 8),
        ),
    ],
)
def test_convolutions(name, left, right, out, attributes, flops):
    assert costs(convolution(left, right, out, attributes)).flops == flops


def test_a_dot():
    text = program(
        "%a = bf16[4,8,16]{2,1,0} parameter(0)",
        "%b = bf16[4,16,32]{2,1,0} parameter(1)",
        "ROOT %c = f32[4,8,32]{2,1,0} dot(%a, %b), lhs_batch_dims={0}, lhs_contracting_dims={2}, "
        "rhs_batch_dims={0}, rhs_contracting_dims={1}",
    )
    assert costs(text).flops == 2 * 4 * 8 * 32 * 16


def test_memory_traffic_is_of_what_lies_in_hbm():
    text = program(
        "%a = f32[100]{0:T(128)} parameter(0)",
        "%b = bf16[100]{0:T(256)(2,1)} parameter(1)",
        "%c = f32[100]{0:T(128)S(1)} add(%a, %a)",  # reads a twice in name: 400 + 400; c is on the chip
        "ROOT %d = f32[100]{0:T(128)} multiply(%c, %b)",  # reads 200, writes 400
    )
    assert costs(text).hbm_bytes == 800 + 600


def test_an_asynchronous_copy_counts_once_for_its_side_in_hbm():
    text = program(
        "%a = f32[100]{0:T(128)} parameter(0)",
        "%s = (f32[100]{0:T(128)S(1)}, f32[100]{0:T(128)}, u32[]{:S(2)}) copy-start(%a)",
        "%d = f32[100]{0:T(128)S(1)} copy-done(%s)",
        "ROOT %e = f32[100]{0:T(128)S(1)} negate(%d)",
    )
    assert costs(text).hbm_bytes == 400


FUSIONS = """
%lookup (p0: f32[30000,768], p1: s32[64]) -> f32[64,768] {
  %p0 = f32[30000,768]{1,0:T(8,128)} parameter(0)
  %p1 = s32[64]{0:T(128)} parameter(1)
  ROOT %g = f32[64,768]{1,0:T(8,128)} gather(%p0, %p1), offset_dims={1}
}

%write (p0: f32[1000,8], p1: f32[1,8], p2: s32[]) -> f32[1000,8] {
  %p0 = f32[1000,8]{1,0:T(8,128)} parameter(0)
  %p1 = f32[1,8]{1,0:T(8,128)} parameter(1)
  %p2 = s32[]{:T(128)} parameter(2)
  ROOT %u = f32[1000,8]{1,0:T(8,128)} dynamic-update-slice(%p0, %p1, %p2, %p2)
}

%inner (q0: f32[64,256], q1: f32[256,128]) -> f32[64,128] {
  %q0 = f32[64,256]{1,0:T(8,128)} parameter(0)
  %q1 = f32[256,128]{1,0:T(8,128)} parameter(1)
  ROOT %c = f32[64,128]{1,0:T(8,128)} convolution(%q0, %q1), dim_labels=bf_io->bf
}

%outer (r0: f32[64,256], r1: f32[256,128]) -> f32[64,128] {
  %r0 = f32[64,256]{1,0:T(8,128)} parameter(0)
  %r1 = f32[256,128]{1,0:T(8,128)} parameter(1)
  %f = f32[64,128]{1,0:T(8,128)} fusion(%r0, %r1), kind=kOutput, calls=%inner
  ROOT %n = f32[64,128]{1,0:T(8,128)} negate(%f)
}
"""


def test_a_lookup_reads_the_rows_that_it_takes():
    text = program(
        "%t = f32[30000,768]{1,0:T(8,128)} parameter(0)",
        "%i = s32[64]{0:T(128)} parameter(1)",
        "ROOT %f = f32[64,768]{1,0:T(8,128)} fusion(%t, %i), kind=kLoop, calls=%lookup",
        before=FUSIONS,
    )
    rows = 64 * 768 * 4
    assert costs(text).hbm_bytes == rows + 64 * 4 + rows


def test_a_row_written_in_place_is_all_that_is_written():
    text = program(
        "%t = f32[1000,8]{1,0:T(8,128)} parameter(0)",
        "%r = f32[1,8]{1,0:T(8,128)} parameter(1)",
        "%i = s32[]{:T(128)} parameter(2)",
        "ROOT %f = f32[1000,8]{1,0:T(8,128)} fusion(%t, %r, %i), kind=kLoop, calls=%write",
        before=FUSIONS,
    )
    assert costs(text).hbm_bytes == 32 + 4 + 32


def test_what_a_fusion_calls_counts_and_its_inner_values_do_not():
    text = program(
        "%a = f32[64,256]{1,0:T(8,128)} parameter(0)",
        "%b = f32[256,128]{1,0:T(8,128)} parameter(1)",
        "ROOT %f = f32[64,128]{1,0:T(8,128)} fusion(%a, %b), kind=kOutput, calls=%outer",
        before=FUSIONS,
    )
    found = costs(text)
    assert found.flops == 2 * 64 * 256 * 128
    assert found.hbm_bytes == 4 * (64 * 256 + 256 * 128 + 64 * 128)


LOOP = """
%body (p: (s32[], f32[64,256], f32[256,256])) -> (s32[], f32[64,256], f32[256,256]) {
  %p = (s32[]{:T(128)}, f32[64,256]{1,0:T(8,128)}, f32[256,256]{1,0:T(8,128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p), index=0
  %x = f32[64,256]{1,0:T(8,128)} get-tuple-element(%p), index=1
  %w = f32[256,256]{1,0:T(8,128)} get-tuple-element(%p), index=2
  %c = f32[64,256]{1,0:T(8,128)} convolution(%x, %w), dim_labels=bf_io->bf
  %r = f32[64,256]{1,0:T(8,128)} all-reduce(%c), replica_groups=[2,4]<=[8], to_apply=%sum
  %step = s32[]{:T(128)} constant(1)
  %next = s32[]{:T(128)} add(%i, %step)
  ROOT %t = (s32[]{:T(128)}, f32[64,256]{1,0:T(8,128)}, f32[256,256]{1,0:T(8,128)}) tuple(%next, %r, %w)
}

%condition (p: (s32[], f32[64,256], f32[256,256])) -> pred[] {
  %p = (s32[]{:T(128)}, f32[64,256]{1,0:T(8,128)}, f32[256,256]{1,0:T(8,128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p), index=0
  %limit = s32[]{:T(128)} constant(12)
  ROOT %less = pred[]{:T(512)} compare(%i, %limit), direction=LT
}
"""


def loop(start="constant(2)", note="", step="constant(1)"):
    text = program(
        f"%zero = s32[]{{:T(128)}} {start}",
        "%x = f32[64,256]{1,0:T(8,128)} parameter(1)",
        "%w = f32[256,256]{1,0:T(8,128)} parameter(2)",
        "%copy = s32[]{:T(128)} copy(%zero)",
        "%t = (s32[]{:T(128)}, f32[64,256]{1,0}, /*index=2*/f32[256,256]{1,0}) tuple(%copy, %x, /*index=2*/%w)",
        f"%loop = (s32[], f32[64,256]{{1,0}}, f32[256,256]{{1,0}}) while(%t), condition=%condition, body=%body{note}",
        "ROOT %out = f32[64,256]{1,0:T(8,128)} get-tuple-element(%loop), index=1",
        before=LOOP,
    )
    return text.replace("%step = s32[]{:T(128)} constant(1)", f"%step = s32[]{{:T(128)}} {step}")


def test_a_loop_counts_as_often_as_it_runs():
    found = costs(loop())  # from 2 up to 12: ten rounds
    assert found.flops == 10 * 2 * 64 * 256 * 256
    assert found.collectives == (Collective("all-reduce", 64 * 256 * 4, 4),) * 10
    # The product, the sum over the replicas, and the counter: itself, the step, and what they make.
    one_round = 4 * (64 * 256 + 256 * 256 + 64 * 256) + 4 * 2 * 64 * 256 + 3 * 4
    assert found.hbm_bytes == 10 * one_round + 2 * 4  # and the copy of the counter


def test_the_compilers_note_of_a_loops_rounds_is_believed():
    note = ', backend_config={"known_trip_count":{"n":"7"}}'
    assert costs(loop("parameter(0)", note)).flops == 7 * 2 * 64 * 256 * 256


def test_a_loop_of_unknown_length_is_not_counted_as_one_round():
    with pytest.raises(UncountableError, match="no constant"):
        costs(loop("parameter(0)"))


@pytest.mark.parametrize(
    ("start", "step", "rounds"),
    [
        ("constant(2)", "constant(2)", 5),  # 2, 4, 6, 8, 10
        ("constant(2)", "constant(4)", 3),  # 2, 6, 10
        ("constant(12)", "constant(1)", 0),
        ("constant(20)", "constant(1)", 0),
    ],
)
def test_a_loops_rounds_follow_its_step(start, step, rounds):
    assert costs(loop(start, step=step)).flops == rounds * 2 * 64 * 256 * 256


@pytest.mark.parametrize("step", ["constant(0)", "constant(-1)", "partition-id()"])
def test_a_loop_whose_counter_does_not_grow_by_a_constant_is_refused(step):
    with pytest.raises(UncountableError):
        costs(loop(step=step))


def carried(limit):
    """A loop from 0 to a limit of 12 that it carries; `limit` is what a round hands on."""
    types = "(s32[]{:T(128)}, s32[]{:T(128)})"
    before = f"""
%body (p: (s32[], s32[])) -> (s32[], s32[]) {{
  %p = {types} parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%p), index=0
  %n = s32[]{{:T(128)}} get-tuple-element(%p), index=1
  %step = s32[]{{:T(128)}} constant(1)
  %next = s32[]{{:T(128)}} add(%i, %step)
  %a = f32[64,256]{{1,0:T(8,128)S(1)}} constant({{...}})
  %c = f32[64,64]{{1,0:T(8,128)S(1)}} dot(%a, %a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  ROOT %t = {types} tuple(%next, {limit})
}}

%condition (p: (s32[], s32[])) -> pred[] {{
  %p = {types} parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%p), index=0
  %n = s32[]{{:T(128)}} get-tuple-element(%p), index=1
  ROOT %less = pred[]{{:T(512)}} compare(%i, %n), direction=LT
}}
"""
    return program(
        "%zero = s32[]{:T(128)} constant(0)",
        "%twelve = s32[]{:T(128)} constant(12)",
        f"%t = {types} tuple(%zero, %twelve)",
        f"ROOT %loop = {types} while(%t), condition=%condition, body=%body",
        before=before,
    )


def test_a_limit_that_a_loop_carries_is_found_and_one_that_it_changes_is_refused():
    assert costs(carried("%n")).flops == 12 * 2 * 64 * 64 * 256
    with pytest.raises(UncountableError, match="changes n"):
        costs(carried("%next"))


@pytest.mark.parametrize(
    ("lines", "hbm_bytes"),
    [
        # Memory that is set aside, not written; and a name for pieces that lie side by side.
        (['ROOT %a = f32[100]{0:T(128)} custom-call(), custom_call_target="AllocateBuffer"'], 0),
        (
            [
                "%a = f32[100]{0:T(128)} parameter(0)",
                'ROOT %b = f32[200]{0:T(128)} custom-call(%a, %a), custom_call_target="ConcatBitcast"',
            ],
            0,
        ),
        (["ROOT %a = s32[100]{0:T(128)} iota(), iota_dimension=0"], 400),
        # The result's tuple names the operand again, which is read once: 400 and 1600.
        (
            [
                "%a = f32[100]{0:T(128)} parameter(0)",
                "%s = (f32[100]{0:T(128)}, f32[400]{0:T(128)}) all-gather-start(%a), replica_groups={{0,1,2,3}}",
                "ROOT %d = f32[400]{0:T(128)} all-gather-done(%s)",
            ],
            400 + 1600,
        ),
        # An update that lies on the chip, of a buffer in HBM: 32 are written, and the two indices read.
        (
            [
                "%a = f32[1000,8]{1,0:T(8,128)} parameter(0)",
                "%u = f32[1,8]{1,0:T(8,128)S(1)} parameter(1)",
                "%i = s32[]{:T(128)} parameter(2)",
                "ROOT %d = f32[1000,8]{1,0:T(8,128)} dynamic-update-slice(%a, %u, %i, %i)",
            ],
            32 + 2 * 4,
        ),
        # What follows the memory space in a layout does not hide it.
        (
            [
                "%a = f32[100]{0:T(128)S(1)SC(0:50)} parameter(0)",
                "ROOT %b = f32[100]{0:T(128)} negate(%a)",
            ],
            400,
        ),
    ],
)
def test_single_instructions_memory_traffic(lines, hbm_bytes):
    assert costs(program(*lines)).hbm_bytes == hbm_bytes


def test_of_a_conditional_the_largest_branch_counts():
    branch = """
%{name} (p: f32[{rows},256]) -> f32[{rows},{rows}] {{
  %p = f32[{rows},256]{{1,0:T(8,128)}} parameter(0)
  ROOT %c = f32[{rows},{rows}]{{1,0:T(8,128)}} dot(%p, %p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
}}
"""
    text = program(
        "%which = pred[]{:T(512)} parameter(0)",
        "%x = f32[8,256]{1,0:T(8,128)} parameter(1)",
        "%y = f32[64,256]{1,0:T(8,128)} parameter(2)",
        "ROOT %c = f32[] conditional(%which, %x, %y), true_computation=%small, false_computation=%large",
        before=branch.format(name="small", rows=8) + branch.format(name="large", rows=64),
    )
    assert costs(text).flops == 2 * 64 * 64 * 256
    assert costs(text).hbm_bytes == 4 * (2 * 64 * 256 + 64 * 64)


SCATTERS = """
%onto (p0: f32[30000,768], p1: s32[64], p2: f32[64,768]) -> f32[30000,768] {
  %p0 = f32[30000,768]{1,0:T(8,128)} parameter(0)
  %p1 = s32[64]{0:T(128)} parameter(1)
  %p2 = f32[64,768]{1,0:T(8,128)} parameter(2)
  ROOT %s = f32[30000,768]{1,0:T(8,128)} scatter(%p0, %p1, %p2), update_window_dims={1}, to_apply=%sum
}

%fresh (p1: s32[64], p2: f32[64,768]) -> f32[30000,768] {
  %zero = f32[]{:T(128)} constant(0)
  %p0 = f32[30000,768]{1,0:T(8,128)} broadcast(%zero), dimensions={}
  %p1 = s32[64]{0:T(128)} parameter(0)
  %p2 = f32[64,768]{1,0:T(8,128)} parameter(1)
  ROOT %s = f32[30000,768]{1,0:T(8,128)} scatter(%p0, %p1, %p2), update_window_dims={1}, to_apply=%sum
}

%cut (p: f32[100]) -> f32[10] {
  %p = f32[100]{0:T(128)} parameter(0)
  ROOT %x = f32[10]{0:T(128)S(1)} slice(%p), slice={[0:10]}
}
"""


@pytest.mark.parametrize(
    ("call", "hbm_bytes"),
    [
        # Rows and indices are read; the rows that were there are read, and written.
        ("fusion(%t, %i, %u), kind=kCustom, calls=%onto", 64 * 4 + 3 * 64 * 768 * 4),
        # A new buffer is written whole.
        ("fusion(%i, %u), kind=kCustom, calls=%fresh", 64 * 4 + 64 * 768 * 4 + 30_000 * 768 * 4),
        ("scatter(%t, %i, %u), update_window_dims={1}, to_apply=%sum", 64 * 4 + 3 * 64 * 768 * 4),
    ],
)
def test_a_scatter_touches_its_rows_alone_where_the_buffer_is_there(call, hbm_bytes):
    text = program(
        "%t = f32[30000,768]{1,0:T(8,128)} parameter(0)",
        "%i = s32[64]{0:T(128)} parameter(1)",
        "%u = f32[64,768]{1,0:T(8,128)} parameter(2)",
        f"ROOT %f = f32[30000,768]{{1,0:T(8,128)}} {call}",
        before=SCATTERS,
    )
    assert costs(text).hbm_bytes == hbm_bytes


def test_an_asynchronous_call_counts_what_it_reads_and_makes():
    text = program(
        "%a = f32[100]{0:T(128)} parameter(0)",
        "%s = ((f32[100]{0:T(128)}), f32[10]{0:T(128)S(1)}, u32[]{:S(2)}) async-start(%a), calls=%cut",
        "ROOT %d = f32[10]{0:T(128)S(1)} async-done(%s), calls=%cut",
        before=SCATTERS,
    )
    assert costs(text).hbm_bytes == 40


def test_no_groups_are_one_of_all_replicas():
    text = program("%a = f32[100]{0} parameter(0)", "ROOT %r = f32[100]{0} all-reduce(%a), replica_groups={}")
    text = text.replace("is_scheduled=true", "is_scheduled=true, replica_count=4")
    assert costs(text).collectives == (Collective("all-reduce", 400, 4),)


def test_the_replicas_sums():
    text = program(
        "%a = f32[100]{0:T(128)} parameter(0)",
        "%b = bf16[10,10]{1,0:T(8,128)} parameter(1)",
        "%r = (f32[100]{0:T(128)}, bf16[10,10]{1,0:T(8,128)}) all-reduce(%a, /*index=1*/%b), "
        "replica_groups={{0,1,2,3}}, to_apply=%sum",
        "%s = f32[100]{0:T(128)} all-reduce-start(%a), replica_groups={{0,1},{2,3}}, to_apply=%sum",
        "%d = f32[100]{0:T(128)} all-reduce-done(%s)",
        "ROOT %out = f32[100]{0:T(128)} get-tuple-element(%r), index=0",
    )
    assert costs(text).collectives == (Collective("all-reduce", 600, 4), Collective("all-reduce", 400, 2))


@pytest.mark.parametrize("start", ["slice-start(%t)", "dynamic-slice-start(%t, %i, %i)"])
def test_an_asynchronous_slice_reads_the_rows_that_it_takes(start):
    taken = "" if start.startswith("slice") else ", s32[]{:T(128)}, s32[]{:T(128)}"
    text = program(
        "%t = f32[1000,8]{1,0:T(8,128)} parameter(0)",
        "%i = s32[]{:T(128)} parameter(1)",
        f"%s = ((f32[1000,8]{{1,0:T(8,128)}}{taken}), f32[128,8]{{1,0:T(8,128)S(1)}}, s32[]{{:S(2)}}) {start}",
        f"ROOT %d = f32[128,8]{{1,0:T(8,128)S(1)}} {start.partition('-start')[0]}-done(%s)",
    )
    assert costs(text).hbm_bytes == 4 * 128 * 8
