"""The programs of docs/python.md run as they stand there, and print what it says."""

from __future__ import annotations

from documentation import ROOT, blocks, python_output

TEXT = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def test_the_programs_of_the_page_run() -> None:
    (message,) = blocks(TEXT, "text")
    assert python_output(TEXT) == (
        "TileBuf(f32 16x16, batch=1000, device=cpu, valid_row=per tile, valid_col=16)\n"
        "(1000, 16, 1) u32 16x16\n" + message.text
    )
