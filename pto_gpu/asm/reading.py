"""Reading the three forms of operations on tiles.

- synchronous: ``%dst = tpartmin %src0, %src1 : T -> T``
- Level 1 (SSA): ``%dst = pto.tpartmin %src0, %src1 : (T, T) -> T``
- Level 2 (DPS): ``pto.tpartmin ins(%src0, %src1 : T, T) outs(%dst : T)``
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xdsl.dialects.builtin import IndexType, IntegerAttr, UnitAttr, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.parser import Parser, UnresolvedOperand

from pto_gpu.asm.type_spellings import OpenTile
from pto_gpu.asm.types import TileAttr, is_integer, pto_parser

if TYPE_CHECKING:
    from pto_gpu.asm.ops import AllocTileOp, AssignOp, StoreOp, TileOp

#: The type of a tile that the text gives none.
OPEN: Final = TileAttr(OpenTile())


class Typed(NamedTuple):
    """An operand as written, with the type written for it, if any."""

    name: UnresolvedOperand
    type: Attribute | None


class Signature(NamedTuple):
    """What stands after the colon. ``single``: one type for all operands; ``results`` None: no arrow."""

    operands: list[Attribute]
    single: bool
    results: list[Attribute] | None


def is_sync(parser: Parser) -> bool:
    """Whether the operation that is being parsed is written without the prefix of the dialect."""
    return "." not in pto_parser(parser).spelled


def parse_values(parser: Parser, count: int | None = None) -> list[UnresolvedOperand]:
    """Operands separated by commas: ``count``, or as many as there are."""
    values = [parser.parse_unresolved_operand()]
    while (len(values) < count) if count is not None else (parser.parse_optional_punctuation(",") is not None):
        if count is not None:
            parser.parse_punctuation(",")
        values.append(parser.parse_unresolved_operand())
    return values


def parse_group(parser: Parser, word: str) -> list[Typed]:
    """The rest of ``word(%a, %b : T, T)``; a type may stand after each operand, or be left out."""
    parser.parse_punctuation("(", f" after {word}")
    typed: list[Typed] = []
    pending: list[UnresolvedOperand] = []
    while True:
        pending.append(parser.parse_unresolved_operand())
        if parser.parse_optional_punctuation(",") is not None:
            continue
        if parser.parse_optional_punctuation(":") is None:
            typed += [Typed(v, None) for v in pending]
            break
        if not _parse_types_of(parser, pending, typed):
            break
        pending = []
    parser.parse_punctuation(")", f" at the end of {word}")
    return typed


def _parse_types_of(parser: Parser, pending: list[UnresolvedOperand], typed: list[Typed]) -> bool:
    """The types of the operands in ``pending``; returns whether more operands follow."""
    for i, value in enumerate(pending):
        typed.append(Typed(value, parser.parse_type()))
        if i + 1 < len(pending):
            parser.parse_punctuation(",", f": {len(pending)} operands need {len(pending)} types")
    if parser.parse_optional_punctuation(",") is None:
        return False
    pos = parser.pos
    if parser.parse_optional_type() is not None:
        parser.raise_error(f"more types than operands: allowed {len(pending)}", pos, parser.pos)
    return True


def parse_signature(parser: Parser) -> Signature | None:
    """``: T``, ``: T -> R``, ``: (T, T) -> (R, R)``, or nothing."""
    if parser.parse_optional_punctuation(":") is None:
        return None
    single = False
    if parser.parse_optional_punctuation("(") is not None:
        operands = [] if parser.parse_optional_punctuation(")") is not None else _types_until(parser)
    else:
        operands = [parser.parse_type()]
        while parser.parse_optional_punctuation(",") is not None:
            operands.append(parser.parse_type())
        single = len(operands) == 1
    if parser.parse_optional_punctuation("->") is None:
        return Signature(operands, single, None)
    if parser.parse_optional_punctuation("(") is None:
        return Signature(operands, single, [parser.parse_type()])
    results = [] if parser.parse_optional_punctuation(")") is not None else _types_until(parser)
    return Signature(operands, single, results)


def _types_until(parser: Parser) -> list[Attribute]:
    types: list[Attribute] = [parser.parse_type()]
    while parser.parse_optional_punctuation(",") is not None:
        types.append(parser.parse_type())
    parser.parse_punctuation(")")
    return types


def parse_tile_op(cls: type[TileOp], parser: Parser) -> TileOp:
    """Any of the three forms of an operation on tiles."""
    sync = is_sync(parser)
    if parser.parse_optional_keyword("ins") is not None:
        return _parse_dps(cls, parser)
    values = parse_values(parser)
    refuse_subscripts(parser, cls.name)
    pos = parser.pos
    signature = parse_signature(parser)
    operands, results = _types_of(cls, parser, values, signature, pos)
    resolved = [parser.resolve_operand(v, t) for v, t in zip(values, operands, strict=True)]
    ins, tmp = _split(cls, resolved)
    return cls.make(ins, tmp, [], results, sync=sync, attributes=_attributes(cls, parser))


def _types_of(
    cls: type[TileOp], parser: Parser, values: list[UnresolvedOperand], signature: Signature | None, pos: int
) -> tuple[list[Attribute], list[Attribute]]:
    """A type for each operand and each result."""
    if signature is None:
        return [OPEN] * len(values), [OPEN] * len(cls.MADE)
    operands, results = signature.operands, signature.results
    if results is None:
        if not signature.single:
            parser.raise_error("'->' and the types of the results expected", pos, parser.pos)
        results = [operands[0]] * len(cls.MADE)
    elif len(results) != len(cls.MADE):
        parser.raise_error(
            f"{cls.name} makes {len(cls.MADE)} tiles ({', '.join(cls.MADE)}): {len(results)} types given",
            pos,
            parser.pos,
        )
    if signature.single:
        operands = cls.spread(operands[0], results, len(values))
    elif len(operands) != len(values):
        parser.raise_error(f"{len(values)} operands need {len(values)} types: seen {len(operands)}", pos, parser.pos)
    return operands, results


def _parse_dps(cls: type[TileOp], parser: Parser) -> TileOp:
    ins = parse_resolved(parser, parse_group(parser, "ins"))
    parser.parse_keyword("outs")
    outs = parse_resolved(parser, parse_group(parser, "outs"))
    sources, tmp = _split(cls, ins)
    return cls.make(sources, tmp, outs, [], sync=False, attributes=_attributes(cls, parser))


def parse_resolved(parser: Parser, group: list[Typed]) -> list[SSAValue]:
    """The values of a group."""
    return [parser.resolve_operand(name, OPEN if ty is None else ty) for name, ty in group]


def _split(cls: type[TileOp], values: Sequence[SSAValue]) -> tuple[Sequence[SSAValue], SSAValue | None]:
    """Sources and scratch tile."""
    if cls.SCRATCH is not None and len(values) == len(cls.SOURCES) + 1:
        return values[:-1], values[-1]
    return values, None


def _attributes(cls: type[TileOp], parser: Parser) -> dict[str, Attribute]:
    """What trails the operation. A clause of a transfer would change what it does: it is refused by its name."""
    if not cls.TRANSFER:
        return parser.parse_optional_attr_dict()
    refuse_clauses(parser, cls.name)
    return {}


def refuse_subscripts(parser: Parser, op: str) -> None:
    """Raise for ``%view[%i, %j]``."""
    pos = parser.pos
    if parser.parse_optional_punctuation("[") is not None:
        parser.raise_error(f"{op}: subscripts are not supported: use pto.partition_view", pos, parser.pos)


def refuse_clauses(parser: Parser, op: str) -> None:
    """Raise for a clause ``word = value``, an attribute or a tensor result after a transfer.

    ``init_out_buffer = false`` says what holds anyway.
    """
    while (word := _clause(parser)) is not None:
        parser.parse_punctuation("=")
        if word[0] != "init_out_buffer" or parser.parse_optional_boolean() is not False:
            parser.raise_error(f"{op}: {word[0]} is not supported", *word[1:])
    if parser.parse_optional_punctuation("{") is not None:
        pos = parser.pos
        key = parser.parse_optional_identifier_or_str_literal()
        if key is not None:
            parser.raise_error(f"{op}: attribute {key} is not supported", pos, parser.pos)
        parser.parse_punctuation("}")
    if parser.parse_optional_punctuation("->") is not None:
        parser.raise_error(f"{op}: a tensor result is not supported")


def _clause(parser: Parser) -> tuple[str, int, int] | None:
    """The word before a ``=`` and where it is; the next operation has a name and no ``=``."""
    start: int = parser.pos
    word = parser.parse_optional_identifier()
    if word is None:
        return None
    end = start + len(word)
    if parser.parse_optional_punctuation("=") is None:
        pto_parser(parser).resume_at(start)
        return None
    pto_parser(parser).resume_at(end)
    return word, start, end


def parse_store(cls: type[StoreOp], parser: Parser) -> StoreOp:
    """``pto.tstore ins(%t : T) outs(%v : V)``, ``pto.tstore %t, %v : (T, V) -> ()``, ``tstore %t, %v : ...``."""
    sync, dps = is_sync(parser), parser.parse_optional_keyword("ins") is not None
    if dps:
        pos = parser.pos
        ins = parse_group(parser, "ins")
        if len(ins) != 1:
            parser.raise_error(
                f"{cls.name} has {len(ins)} source operands: allowed 1; a pre-quantisation scalar is not supported",
                pos,
                parser.pos,
            )
        parser.parse_keyword("outs")
        outs = parse_group(parser, "outs")
        if len(outs) != 1:
            parser.raise_error(f"{cls.name} writes to one view")
        typed = [*ins, *outs]
    else:
        typed = _stored(cls, parser)
    refuse_clauses(parser, cls.name)
    tile, view = typed
    resolve = pto_parser(parser).resolve_operand
    operands = [resolve(tile.name, tile.type or OPEN), resolve(view.name, view.type)]
    return cls(operands=operands, properties={"dps": flag(dps), "sync": flag(sync and not dps)})


def _stored(cls: type[StoreOp], parser: Parser) -> list[Typed]:
    tile = parser.parse_unresolved_operand()
    parser.parse_punctuation(",")
    view = parser.parse_unresolved_operand()
    refuse_subscripts(parser, cls.name)
    pos = parser.pos
    signature = parse_signature(parser)
    if signature is None:
        return [Typed(tile, None), Typed(view, None)]
    if len(signature.operands) != 2 or signature.results:
        parser.raise_error("the types of a tile and of a view expected: (T, V) -> ()", pos, parser.pos)
    return [Typed(v, t) for v, t in zip((tile, view), signature.operands, strict=True)]


def flag(present: bool) -> UnitAttr | None:
    """The value of a property that is there or not."""
    return UnitAttr() if present else None


def parse_alloc(cls: type[AllocTileOp], parser: Parser) -> AllocTileOp:
    """``alloc_tile [addr = %a] [valid_row = %r] [valid_col = %c] [{...}] : type``; ``, i32`` after it for counts."""
    written: dict[str, UnresolvedOperand] = {}
    for word in ("addr", "valid_row", "valid_col"):
        if parser.parse_optional_keyword(word) is not None:
            parser.parse_punctuation("=", f" after {word}")
            written[word] = parser.parse_unresolved_operand()
    attributes = parser.parse_optional_attr_dict()
    parser.parse_punctuation(":")
    ty = parser.parse_type()
    addr = written.pop("addr", None)
    counts = dict(zip(written, parse_counts(parser, list(written.values())), strict=True))
    operands = [
        [_integer(parser, addr, None)] if addr is not None else [],
        *([counts[word]] if word in counts else [] for word in ("valid_row", "valid_col")),
    ]
    return cls(operands=operands, result_types=[ty], attributes=attributes)


def parse_counts(parser: Parser, operands: list[UnresolvedOperand]) -> list[SSAValue]:
    """Valid rows and columns: indices, unless ``, i32`` (one type for both, or one for each) says otherwise."""
    types: list[Attribute] = []
    while len(types) < len(operands) and parser.parse_optional_punctuation(",") is not None:
        types.append(parser.parse_type())
    types = types or [IndexType()]
    return [parser.resolve_operand(v, types[min(i, len(types) - 1)]) for i, v in enumerate(operands)]


def _integer(parser: Parser, operand: UnresolvedOperand, ty: Attribute | None) -> SSAValue:
    """A scalar operand; an address may be of any integer type, and is an i64 where nothing says more."""
    if ty is None:
        ty = None if pto_parser(parser).is_defined(operand.operand_name) else i64
    return pto_parser(parser).resolve_operand(operand, ty)


def parse_assign(cls: type[AssignOp], parser: Parser) -> AssignOp:
    """``tassign %t, %a : T, index``, with ``pto.``, with ``ins(...)``, with a result; the address may be a literal."""
    sync, dps = is_sync(parser), parser.parse_optional_keyword("ins") is not None
    if dps:
        parser.parse_punctuation("(", " after ins")
    tile = parser.parse_unresolved_operand()
    parser.parse_punctuation(",")
    at = _literal_address(parser)
    addr = parser.parse_unresolved_operand("an address, %value or @tile(0x1000), is expected") if at is None else None
    types, result = _assign_types(parser)
    if dps:
        parser.parse_punctuation(")", " at the end of ins")
    tile_value = parser.resolve_operand(tile, types[0] if types else OPEN)
    addr_type = types[1] if len(types) > 1 and is_integer(types[1]) else None
    return cls(
        operands=[tile_value, [] if addr is None else [_integer(parser, addr, addr_type)]],
        result_types=[[result] if result is not None else []],
        properties={"at": at, "dps": flag(dps), "sync": flag(sync and not dps)},
    )


def _literal_address(parser: Parser) -> IntegerAttr[Any] | None:
    pos = parser.pos
    symbol = parser.parse_optional_symbol_name()
    if symbol is None:
        return None
    if symbol.data != "tile":
        parser.raise_error(f"@{symbol.data} is no address: allowed @tile(0x1000)", pos, parser.pos)
    with parser.in_parens():
        number = parser.parse_integer(allow_boolean=False)
    if number.bit_length() > 63:
        parser.raise_error("the address is out of range", pos, parser.pos)
    return IntegerAttr(number, i64)


def _assign_types(parser: Parser) -> tuple[list[Attribute], Attribute | None]:
    """Types of the operands (the page says ``dtype`` for that of the address), and of the result."""
    if parser.parse_optional_punctuation(":") is None:
        return [], None
    types: list[Attribute] = [parser.parse_type()]
    if parser.parse_optional_punctuation(",") is not None and parser.parse_optional_keyword("dtype") is None:
        types.append(parser.parse_type())
    if parser.parse_optional_punctuation("->") is None:
        return types, None
    return types, parser.parse_type()


def parse_index_list(parser: Parser, word: str) -> list[SSAValue]:
    """``word = [%a, %b]``."""
    parser.parse_keyword(word)
    parser.parse_punctuation("=", f" after {word}")
    values = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
    return [parser.resolve_operand(v, IndexType()) for v in values]
