"""The programs in docs/torch.md run as they stand there."""

from __future__ import annotations

from documentation import ROOT, blocks, python_output

TEXT = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")


def test_the_programs_of_the_page_run() -> None:
    """In a process of its own, where warnings of torch about itself are none of ours."""
    assert len(blocks(TEXT, "python")) == 3
    assert python_output(TEXT) == "torch.Size([100, 16, 1]) torch.Size([32])\ntensor(False)\n"
