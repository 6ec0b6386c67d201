"""xDSL's lexer, with the comments and the limits that PTO-AS needs."""

from __future__ import annotations

import re
from typing import Final

from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Input, Position, Span
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRToken, MLIRTokenKind

#: Brackets inside brackets; deeper text would exhaust the stack of a recursive parser.
MAX_DEPTH: Final = 40
#: Digits of a number; Python refuses to read very long ones.
MAX_DIGITS: Final = 64

_OPENING: Final = (MLIRTokenKind.L_PAREN, MLIRTokenKind.L_SQUARE, MLIRTokenKind.L_BRACE, MLIRTokenKind.LESS)
_CLOSING: Final = (MLIRTokenKind.R_PAREN, MLIRTokenKind.R_SQUARE, MLIRTokenKind.R_BRACE, MLIRTokenKind.GREATER)
_QUOTED: Final = (MLIRTokenKind.STRING_LIT, MLIRTokenKind.BYTES_LIT, MLIRTokenKind.AT_IDENT)
_NUMBERS: Final = (MLIRTokenKind.INTEGER_LIT, MLIRTokenKind.FLOAT_LIT)


class PtoLexer(MLIRLexer):
    """Tokens of PTO-AS.

    ``//`` starts a comment; so does ``#`` where it starts no attribute: before anything but a name (``# text``), and
    at the start of a line before a word that is followed by neither ``.``, ``<`` nor ``=``. A ``;`` may end a line.
    """

    _whitespace_regex = re.compile(
        r"""(
            //[^\n]*
          | \#(?![A-Za-z0-9_$.-])[^\n]*
          | (?:(?<=\n)|(?<![\s\S]))[ \t]*\#[A-Za-z_]\w*(?![\w.<])(?![ \t]*=)[^\n]*
          | ;(?=[ \t\r]*(?:\n|\Z|//|\#))
          | \s
        )*""",
        re.ASCII | re.VERBOSE,
    )

    # xDSL's takes exponential time for a string that is not closed.
    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*"')

    def lex(self) -> MLIRToken:
        """The next token; raises ParseError for what is none."""
        token = super().lex()
        if token.kind not in _QUOTED and not token.text.isascii():
            at = token.span.start + next(i for i, c in enumerate(token.text) if not c.isascii())
            raise ParseError(Span(at, at + 1, self.input), f"unexpected character {self.input.content[at]!r}")
        if token.kind in _NUMBERS and len(token.text) > MAX_DIGITS:
            raise ParseError(token.span, f"a number of {len(token.text)} characters: allowed {MAX_DIGITS}")
        return token

    def _lex_prefixed_ident(self, start_pos: Position) -> MLIRToken:
        if self._suffix_id.match(self.input.content, self.pos) is None:
            mark = self.input.content[start_pos]
            raise ParseError(Span(start_pos, start_pos + 1, self.input), f"a name is expected after {mark!r}")
        return super()._lex_prefixed_ident(start_pos)


def check_depth(source: Input[str]) -> None:
    """Raise ParseError where brackets are nested too deeply; what is no token is left to the parser."""
    lexer, depth = PtoLexer(source), 0
    while True:
        try:
            token = lexer.lex()
        except ParseError:
            return
        if token.kind is MLIRTokenKind.EOF:
            return
        depth = max(0, depth + (token.kind in _OPENING) - (token.kind in _CLOSING))
        if depth > MAX_DEPTH:
            raise ParseError(token.span, f"brackets are nested too deeply: allowed {MAX_DEPTH} levels")
