"""PTO-AS: parse, verify, print and run tile programs.

``parse(text, filename)`` gives a :class:`Program`; ``docs/asm.md`` shows what it can do.
"""

from pto_gpu.asm.program import Program, parse

__all__ = ["Program", "parse"]
