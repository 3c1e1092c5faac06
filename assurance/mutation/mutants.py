"""Mutants of a module: small changes to its syntax tree that some test should detect."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
FAULTS = {"PeerFault", "Misuse", "ShareError", "PackingError"}
"""Exceptions with texts for people: causes and parties are mutated, the sentences are not."""
COMMUTATIVE = {
    *("min", "max", "suppress", "or_", "and_", "gcd", "hypot"),
    *("maximum", "minimum", "add", "multiply", "bitwise_and", "may_share_memory", "clip"),
}
"""Functions whose first two arguments may stand in any order; `np.clip` takes the smaller of its third and the larger of these."""
LEFT_OUT = {"tags.py", "causes.py", "errors.py", "rest.py", "simulator.py"}
"""Modules without mutants: names, texts and JSON models, where a change would change the specification, and a tool of the tests."""


@dataclass(frozen=True)
class Mutant:
    """One change to a module.

    Attributes:
        path: of the module, from the project's root.
        line: its line, from 1.
        operator: the kind of change.
        before: the source line, stripped; `after`: the changed line.
        node: index of the changed node in `ast.walk`; `variant`: index among the operator's changes of that node.
    """

    path: str
    line: int
    operator: str
    before: str
    after: str
    node: int
    variant: int


def mutants_of(root: Path, path: Path) -> list[Mutant]:
    """Return all mutants of a module, in order."""
    if path.name in LEFT_OUT:
        return []
    source = path.read_text("utf-8")
    tree, lines, found = ast.parse(source), source.splitlines(), []
    spared = _spared(tree)
    for place, node in enumerate(ast.walk(tree)):
        if node in spared or not isinstance(node, ast.expr | ast.stmt):
            continue
        for variant, (operator, changed) in enumerate(_changes(node)):
            line, after = lines[node.lineno - 1].encode(), ast.unparse(changed).splitlines()[0]
            before = line.decode().strip()
            if node.end_lineno == node.lineno:  # columns count bytes
                after = (
                    (line[: node.col_offset] + after.encode() + line[node.end_col_offset :]).decode().strip()
                )
            if after != before:
                name = str(path.relative_to(root))
                found.append(Mutant(name, node.lineno, operator, before, after, place, variant))
    return found


def apply(root: Path, mutant: Mutant) -> ast.Module:
    """Return the module's tree with the mutant applied."""
    tree = ast.parse((root / mutant.path).read_text("utf-8"))
    target = next(node for place, node in enumerate(ast.walk(tree)) if place == mutant.node)
    _, changed = list(_changes(target))[mutant.variant]

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return ast.copy_location(changed, node) if node is target else self.generic_visit(node)

    replaced = Replace().visit(tree)
    assert isinstance(replaced, ast.Module)
    return ast.fix_missing_locations(replaced)


def _spared(tree: ast.Module) -> set[ast.AST]:
    """Return nodes that tests can't or shouldn't check: docstrings, texts of errors, imports, types that aren't read at run time."""
    spared: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.JoinedStr() | ast.Expr(value=ast.Constant()):
                spared.update(ast.walk(node))
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                spared.update(ast.walk(node))
            case ast.arg(annotation=ast.AST() as types):
                spared.update(ast.walk(types))
            case ast.FunctionDef(returns=types) | ast.AsyncFunctionDef(returns=types):
                own = [each.annotation for each in ast.walk(node) if isinstance(each, ast.AnnAssign)]
                spared.update(one for each in (types, *own) if each for one in ast.walk(each))
            case ast.Call(func=ast.Name(id=name), args=words) if name in FAULTS:
                # the constructor sets the order of a fault's parts, and its sentence is for people
                spared.add(node)
                spared.update(
                    one for word in words if not isinstance(word, ast.List) for one in ast.walk(word)
                )
            case ast.Call(func=ast.Name(id="dataclass" | "TypeVar")):
                spared.update(ast.walk(node))
            case ast.AnnAssign(annotation=ast.Subscript(value=ast.Name(id="ClassVar")) as types):
                spared.update(ast.walk(types))
            case _:
                pass
    return spared


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=operators):
            for place, one in enumerate(operators):
                swapped = [*operators[:place], COMPARISONS[type(one)](), *operators[place + 1 :]]
                yield "comparison", ast.Compare(node.left, swapped, node.comparators)
        case ast.BoolOp(op=joined):
            yield "boolean", ast.BoolOp(ast.And() if isinstance(joined, ast.Or) else ast.Or(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield "boolean", node.operand
        case ast.IfExp():
            yield "boolean", ast.IfExp(node.test, node.orelse, node.body)
        case ast.BinOp(op=operator) if type(operator) in ARITHMETIC:
            yield "arithmetic", ast.BinOp(node.left, ARITHMETIC[type(operator)](), node.right)
        case ast.Constant(value=value):
            for other in _constants(value):
                yield "constant", ast.Constant(other)
        case _:
            yield from _arrangements(node)
            yield from _statements(node)


def _arrangements(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Slice(lower=lower, upper=upper):
            if lower:
                yield "slice", ast.Slice(None, upper, node.step)
            if upper:
                yield "slice", ast.Slice(lower, None, node.step)
        case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)) if name in COMMUTATIVE:
            pass
        case ast.Call(args=[first, second, *rest]) if not isinstance(first, ast.Starred | ast.GeneratorExp):
            if ast.dump(first) != ast.dump(second):
                yield "arguments", ast.Call(node.func, [second, first, *rest], node.keywords)
        case _:
            pass


def _constants(value: object) -> tuple[bytes | int, ...]:
    match value:
        case bool():
            return (not value,)
        case int():
            return value + 1, value - 1
        case bytes():
            return (value + b"\0",)
        case _:
            return ()


def _statements(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.If(test=test) | ast.While(test=test):
            changed = copy.copy(node)
            changed.test = ast.UnaryOp(ast.Not(), test)
            if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
                yield "boolean", changed
        case ast.Raise() | ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "statement", ast.Pass()
        case ast.Return(value=ast.AST() as value) if not isinstance(value, ast.Constant):
            yield "return", ast.Return(ast.Constant(None))
        case _:
            pass
