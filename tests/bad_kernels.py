"""Kernels that the code check must refuse; run as a script, prints what it says of each as JSON."""

import json
import warnings

import codegen  # bench/ is on the path of the process that runs this
import triton
import triton.language as tl
from triton.compiler import ASTSource


@triton.jit
def scalar(x, y, n):
    """A mask of its own for every element."""
    i = tl.program_id(0).to(tl.int64) * 2048 + tl.arange(0, 2048)
    tl.store(y + i, tl.load(x + i, mask=i < n, other=0), mask=i < n)


@triton.jit
def wraps(x, y, n):
    """32-bit offsets."""
    i = tl.program_id(0) * 2048 + tl.arange(0, 2048)
    tl.store(y + i, tl.load(x + i))


@triton.jit
def fused(x, y, n):
    """Multiply and add rounded together."""
    i = tl.arange(0, 2048)
    a = tl.load(x + i).to(tl.float32, bitcast=True)
    tl.store(y + i, (a * a + a).to(tl.int32, bitcast=True))


@triton.jit
def spills(x, y, n):
    """More live values than the registers it gets."""
    i = tl.arange(0, 8192)
    a = tl.load(x + i)
    tl.store(y + i, a - tl.max(a, axis=0))


def problems(kernel, **options):
    pointer = [["tt.divisibility", 16]]
    source = ASTSource(kernel, {"x": "*i32", "y": "*i32", "n": "i32"}, {}, {(0,): pointer, (1,): pointer})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = triton.compile(source, target=codegen.TARGETS["sm_90"], options={"num_warps": 4, **options})
    return codegen.judge(kernel.__name__, compiled, (8192, 8192), full=True).problems


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "scalar": problems(scalar),
                "wraps": problems(wraps),
                "fused": problems(fused, enable_fp_fusion=True),
                "spills": problems(spills, maxnreg=24),
            }
        )
    )
