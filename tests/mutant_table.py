"""What is to be said about each mutant."""

import numpy as np
from mutants import (
    after,
    blocks,
    canonical_negated,
    compared_as_signed,
    copied_in_blocks,
    first_column_skipped,
    flushed,
    index_from_value_stride,
    indices_exchanged,
    nan_not_multiplied,
    nan_of_x86,
    one_tile_in_a_thousand,
    payload_kept,
    prelu,
    regions,
    rounded_twice,
    rounded_up_on_ties,
    rows_packed,
    rules,
    truncated,
    whole_row,
    whole_tile,
    zeros_in_operand_order,
    zeros_ordered,
    zeros_unsigned,
)

from pto_gpu.campaign import compare

VALUE, INDEX, NAN = compare.VALUE, compare.INDEX, compare.NAN
TIE, ZERO, OUTSIDE = compare.TIE, compare.SIGNED_ZERO, compare.OUTSIDE


def short(operand, what):
    return f"{operand}'s valid region taken one {what} short"


def long(operand, what):
    return f"{operand}'s valid region taken one {what} long"


DROPPED, SELECTED = "NaN dropped", "NaN and signed zeros by plain compare and select"
ALL, UNSIGNED = "dst's valid region taken as the whole tile", "-0 written as +0"
FLUSHED, SIGNED = "subnormal results flushed keeping their sign", "values compared with the wrong signedness"
IN_ORDER = "-0 and +0 taken as equal: the earlier one is kept"
STRIDE = "the row stride of each source's value tile used for its index tile"
TWICE, AWAY = "product rounded twice", "product rounded away from zero on ties"
#: name, mutant, a category that it is reported under, its cause.
MUTANTS = {
    "TPARTMIN f32": [
        ("dst rows one short", regions({"dst": (-1, 0)}), VALUE, short("dst", "row")),
        ("dst columns one short", regions({"dst": (0, -1)}), VALUE, short("dst", "column")),
        ("dst rows one long", regions({"dst": (1, 0)}), OUTSIDE, long("dst", "row")),
        ("dst columns one long", regions({"dst": (0, 1)}), OUTSIDE, long("dst", "column")),
        ("src0 rows one short", regions({"src0": (-1, 0)}), VALUE, short("src0", "row")),
        ("src0 columns one short", regions({"src0": (0, -1)}), VALUE, short("src0", "column")),
        ("src1 rows one long", regions({"src1": (1, 0)}), VALUE, long("src1", "row")),
        ("src1 columns one long", regions({"src1": (0, 1)}), VALUE, long("src1", "column")),
        ("NaN dropped", rules(nan="number"), NAN, DROPPED),
        ("NaN by compare and select", rules(nan="select"), NAN, SELECTED),
        ("NaN negated", after(lambda x: np.where(np.isnan(x), -x, x)), NAN, "the sign of every NaN turned over"),
        ("NaN payload kept", payload_kept, NAN, "a NaN result keeps the bits of the first NaN operand"),
        ("zeros in operand order", zeros_in_operand_order, ZERO, IN_ORDER),
        ("zeros unsigned", after(zeros_unsigned), ZERO, UNSIGNED),
        ("subnormals flushed", after(flushed), VALUE, FLUSHED),
        ("whole tile written", whole_tile, OUTSIDE, ALL),
        (
            "whole blocks written",
            blocks("dst"),
            OUTSIDE,
            "dst's valid region taken up to the end of its last 32-byte block",
        ),
        (
            "whole blocks copied",
            copied_in_blocks,
            OUTSIDE,
            "dst's valid region, and that of the first source that covers it, "
            "taken up to the end of its last 32-byte block",
        ),
        (
            "last block left out",
            blocks("dst", up=False),
            VALUE,
            "dst's valid region taken without its last, partial 32-byte block",
        ),
        ("rows packed", rows_packed, VALUE, "the rows of dst packed to its valid columns"),
        ("one tile wrong", one_tile_in_a_thousand, VALUE, None),
    ],
    "TPARTMIN bf16": [
        ("NaN dropped", rules(nan="number"), NAN, DROPPED),
        ("zeros in operand order", zeros_in_operand_order, ZERO, IN_ORDER),
    ],
    "TPARTMIN u8": [
        ("compared as signed", compared_as_signed, VALUE, SIGNED),
        ("whole tile written", whole_tile, OUTSIDE, ALL),
    ],
    "TPARTMIN u32": [("compared as signed", compared_as_signed, VALUE, SIGNED)],
    "TPARTARGMIN f32/i32": [
        ("tie flipped", rules(tie="src0"), TIE, "ties go to src0"),
        ("NaN dropped", rules(nan="number"), NAN, DROPPED),
        ("index from the value tile's stride", index_from_value_stride, INDEX, STRIDE),
        ("index rows one short", regions({"dst_idx": (-1, 0)}), INDEX, short("dst_idx", "row")),
        (  # the reference asks the value tile where a side is valid
            "src0 columns one short",
            regions({"src0_val": (0, -1), "src0_idx": (0, -1)}),
            INDEX,
            short("src0_val", "column"),
        ),
        ("zeros ordered", zeros_ordered, TIE, "-0 taken as less than +0, where they tie"),
        ("indices exchanged", indices_exchanged, INDEX, "src0_idx and src1_idx exchanged"),
        (
            "whole tile written",
            whole_tile,
            OUTSIDE,
            "the valid regions of dst_val and dst_idx taken as the whole tile",
        ),
    ],
    "TPARTARGMIN f16/u16": [
        ("tie flipped", rules(tie="src0"), TIE, "ties go to src0"),
        ("index from the value tile's stride", index_from_value_stride, INDEX, STRIDE),
    ],
    "TROWMIN f32": [
        ("src columns one short", regions({"src": (0, -1)}), VALUE, short("src", "column")),
        ("src columns one long", regions({"src": (0, 1)}), VALUE, long("src", "column")),
        ("dst rows one short", regions({"dst": (-1, 0)}), VALUE, short("dst", "row")),
        ("dst rows one long", regions({"dst": (1, 0)}), OUTSIDE, long("dst", "row")),
        ("first column skipped", first_column_skipped, VALUE, "the first column of src left out"),
        (
            "last block left out",
            blocks("src", up=False),
            VALUE,
            "src's valid region taken without its last, partial 32-byte block",
        ),
        ("NaN dropped", rules(nan="number"), NAN, DROPPED),
        ("NaN of x86", after(canonical_negated), NAN, "the canonical NaN has its sign bit set"),
        ("zeros unsigned", after(zeros_unsigned), ZERO, UNSIGNED),
        ("subnormals flushed", after(flushed), VALUE, FLUSHED),
        ("whole tile written", whole_tile, OUTSIDE, ALL),
        ("whole row written", whole_row, OUTSIDE, "the result of a row written to all columns of dst"),
    ],
    "TROWMIN i8": [
        ("src columns one short", regions({"src": (0, -1)}), VALUE, short("src", "column")),
        ("src columns one long", regions({"src": (0, 1)}), VALUE, long("src", "column")),
    ],
    "TPRELU f32": [
        ("product rounded twice", prelu(rounded_twice), VALUE, TWICE),
        ("ties rounded away", prelu(rounded_up_on_ties), VALUE, AWAY),
        ("product truncated", prelu(truncated), VALUE, "product rounded towards zero"),
        ("subnormals flushed", after(flushed), VALUE, FLUSHED),
        (
            "subnormal products flushed",
            prelu(lambda x, slope: flushed(x * slope)),
            VALUE,
            "subnormal products flushed keeping their sign",
        ),
        ("slope ignored", prelu(lambda x, slope: x), VALUE, "src1 ignored (taken as 1)"),
        (
            "slope of the tile's first element",
            prelu(lambda x, slope: x * slope[:, :1, :1]),
            VALUE,
            "src1: its first element read for all",
        ),
        (
            "max and min of parts",
            prelu(lambda x, slope: np.maximum(x, 0) + slope * np.minimum(x, 0)),
            ZERO,
            "computed as max(x, 0) + slope * min(x, 0)",
        ),
        (
            "NaN of x86",
            nan_of_x86,
            NAN,
            "a NaN result keeps the payload of the first NaN operand, else has its sign bit set, as on x86",
        ),
        ("NaN not multiplied", nan_not_multiplied, NAN, "a NaN of src0 is kept as it is"),
        ("zero kept", rules(zero="keep"), ZERO, "x = ±0 returned as it is"),
        ("dst columns one long", regions({"dst": (0, 1)}), OUTSIDE, long("dst", "column")),
        ("whole tile written", whole_tile, OUTSIDE, ALL),
    ],
    "TPRELU f16": [
        ("product rounded twice", prelu(rounded_twice), VALUE, TWICE),
        ("ties rounded away", prelu(rounded_up_on_ties), VALUE, AWAY),
        ("product truncated", prelu(truncated), VALUE, "product rounded towards zero"),
        ("subnormals flushed", after(flushed), VALUE, FLUSHED),
        ("slope ignored", prelu(lambda x, slope: x), VALUE, "src1 ignored (taken as 1)"),
    ],
}
#: Mutants that are right about a batch of one.
ALONE = {"one tile wrong"}
#: The rule sets that mean the same to the instruction as what the mutant changed.
RULE_SETS = {
    ("TPARTMIN f32", "NaN dropped"): ("formal",),
    ("TPARTMIN f32", "NaN by compare and select"): ("simulator",),
    ("TPARTMIN bf16", "NaN dropped"): ("formal",),
    ("TPARTARGMIN f32/i32", "tie flipped"): ("a5", "a2a3"),
    ("TPARTARGMIN f32/i32", "NaN dropped"): ("formal",),
    ("TPARTARGMIN f16/u16", "tie flipped"): ("a5", "a2a3"),
    ("TROWMIN f32", "NaN dropped"): ("formal",),
    ("TPRELU f32", "zero kept"): ("a5",),
}
