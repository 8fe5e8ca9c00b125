"""Write src/accounting/page/formulas.js: the formulas of accounting in JavaScript, translated from their Python.

    python packages/accounting/generate/page_formulas.py             writes it
    python packages/accounting/generate/page_formulas.py --check     status 1 if it is not up to date

The functions of questions.py and all that they need are translated, module by module, from their syntax trees. An int
becomes a BigInt, a float a number, a tuple a frozen array, and an operation that means something else in JavaScript a
call of runtime.js. What this package does not use is not translated: TypeError.
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
OUT = SOURCE / "accounting/page/formulas.js"
ROOTS = [("accounting.page.questions", name) for name in ("choices", "answer", "largest")]
OPERATORS: dict[type[ast.AST], str] = {
    **{ast.Add: "$add", ast.Sub: "$sub", ast.Mult: "$mul", ast.Div: "$div", ast.FloorDiv: "$floordiv"},
    **{ast.Mod: "$mod", ast.Pow: "$pow", ast.LShift: "$shl", ast.BitOr: "$union", ast.BitAnd: "$meet"},
    **{ast.Eq: "$eq", ast.NotEq: "$ne", ast.Lt: "$lt", ast.LtE: "$le", ast.Gt: "$gt", ast.GtE: "$ge"},
    **{ast.In: "$in", ast.NotIn: "$notin", ast.Is: "$is", ast.IsNot: "$isnot"},
}
RESERVED = {"default", "new", "function", "var", "this", "case", "const", "let", "static", "package", "switch", "enum"}
NATIVE = {"split", "replace", "sort", "pop"}  # methods of JavaScript's own strings and arrays, which do something else
UNTRANSLATED = ("__future__", "typing", "collections.abc", "math")  # modules of names that stand in annotations
BASES = {"Mapping", "KW_ONLY", "log2"}  # names of those that runtime.js defines
UNNEEDED = {"Named"}  # classes of tables whose names a form chooses: Named(kind, entries) is its entries


def program(roots: list[tuple[str, str]]) -> str:
    """JavaScript that ends with an object of the functions of these (module, name)."""
    modules: dict[str, Module] = {}
    waiting = list(roots)
    while waiting:
        module, name = waiting.pop()
        if module not in modules:
            modules[module] = Module(module)
        if name not in modules[module].needed:
            modules[module].needed.add(name)
            waiting += modules[module].uses(name)
    texts = "".join(f"$modules[{_text(name)}] = () => {{\n{source.text()}}};\n" for name, source in modules.items())
    results = ", ".join(f"{name}: $load({_text(module)}).{name}" for module, name in roots)
    return f"// Written by generate/page_formulas.py\n{texts}const accounting = {{ {results} }};\n"


class Module:
    """The statements of a module by the names that they define, its imports, and the names that are needed."""

    def __init__(self, name: str) -> None:
        self.name, self.module = name, importlib.import_module(name)
        self.needed: set[str] = set()
        self.statements: list[tuple[set[str], ast.stmt]] = []
        self.imports: dict[str, tuple[str, str]] = {}
        for statement in ast.parse(Path(str(self.module.__file__)).read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    self.imports[alias.asname or alias.name] = (str(statement.module), alias.name)
            elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
                self.statements.append(({statement.name}, statement))
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                self.statements.append((set(_assigned([statement])), statement))

    def uses(self, name: str) -> Iterator[tuple[str, str]]:
        """Names of this package that the definition of a name needs."""
        if name in UNNEEDED:
            return
        if name in self.imports:
            yield from _names_of(*self.imports[name])
        own = {name for names, _ in self.statements for name in names}
        for names, statement in self.statements:
            if name in names and not _reads_file(statement):
                for node in _walk(statement):
                    if isinstance(node, ast.Name) and node.id in own | set(self.imports):
                        yield self.name, node.id
                    elif isinstance(node, ast.ImportFrom):
                        yield from (one for alias in node.names for one in _names_of(str(node.module), alias.name))

    def text(self) -> str:
        """The needed statements in JavaScript."""
        lines = []
        for name in sorted((self.needed & set(self.imports)) - UNNEEDED):
            module, original = self.imports[name]
            if module not in UNTRANSLATED or name in BASES:
                lines.append(f"const {_name(name)} = {_imported(module, original)};")
        own: list[str] = []
        for names, statement in self.statements:
            if names & self.needed:
                own += sorted(names)
                lines.append(f"let {', '.join(map(_name, sorted(names)))};")
                if isinstance(statement, ast.FunctionDef) and _reads_file(statement):
                    contents = _text(getattr(self.module, statement.name)())
                    lines.append(f"{statement.name} = () => $json({_text(contents)});")
                else:
                    lines.append(_statement(statement))
        return "\n".join([*lines, f"return {{{', '.join(map(_name, own))}}};\n"])


def _reads_file(statement: ast.stmt) -> bool:
    """True for a function without parameters that reads a file: a page has what it returns."""
    function = isinstance(statement, ast.FunctionDef) and not statement.args.args
    return function and any(isinstance(node, ast.With) for node in ast.walk(statement))


def _walk(node: ast.AST, *, inside: bool = True) -> Iterator[ast.AST]:
    """The nodes below one without annotations; with inside=False without those in a scope of their own."""
    yield node
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or field in ("annotation", "returns"):
                continue
            if inside or not isinstance(child, ast.comprehension | ast.Lambda | ast.FunctionDef | ast.ClassDef):
                yield from _walk(child, inside=inside)
            elif isinstance(child, ast.FunctionDef):
                yield ast.Name(child.name, ast.Store())


def _assigned(body: Iterable[ast.AST]) -> list[str]:
    """Names that statements assign, and those of := wherever they stand."""
    names = []
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            names.append(statement.name)
            continue
        for node in _walk(statement, inside=False):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append(node.id)
            elif isinstance(node, ast.ImportFrom):
                names += [alias.asname or alias.name for alias in node.names]
        names += [node.target.id for node in ast.walk(statement) if isinstance(node, ast.NamedExpr)]
    return sorted(set(names))


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _name(name: str) -> str:
    return f"{name}$" if name in RESERVED else name


def _function(node: ast.FunctionDef) -> str:
    """A function whose arguments $def binds as Python does."""
    of, names = node.args, []
    positional = [*of.posonlyargs, *of.args]
    for at, argument in enumerate(positional):
        optional = at >= len(positional) - len(of.defaults)
        names.append(argument.arg + "=" * optional)
    defaults = list(map(_expression, of.defaults))
    if of.vararg or of.kwonlyargs:
        names.append("*" + (of.vararg.arg if of.vararg else ""))
    for argument, default in zip(of.kwonlyargs, of.kw_defaults, strict=True):
        names.append(argument.arg + "=" * (default is not None))
        defaults += [] if default is None else [_expression(default)]
    if of.kwarg:
        names.append("**" + of.kwarg.arg)
    parameters = [_name(bare) for name in names if (bare := name.strip("*="))]
    local = [_name(name) for name in _assigned(node.body) if _name(name) not in parameters]
    star = "*" * any(isinstance(one, ast.Yield) for one in _walk(node, inside=False))
    body = (f"let {', '.join(local)};\n" if local else "") + _block(node.body)
    code = f"function{star} ({', '.join(parameters)}) {{\n{body}}}"
    value = f"$def({_text(node.name)}, {_text(' '.join(names))}, [{', '.join(defaults)}], {code})"
    for decorator in reversed(node.decorator_list):
        value = f"{_expression(decorator)}({value})"
    return value


def _class(node: ast.ClassDef) -> str:
    """A class: its fields if it is a dataclass, and what stands in its body, whose names are attributes of $c."""
    fields, lines, own = [], [], set()
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef):
            lines.append(f"$c.{statement.name} = {_function(statement)};")
            own.add(statement.name)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name, value = statement.target.id, statement.value and _expression(statement.value)
            if node.decorator_list:
                fields.append(f"[{_text(name)}{f', {value}' if value else ''}]")
            elif value:
                lines.append(f"$c.{name} = {value};")
        elif isinstance(statement, ast.Assign):
            value = f"$c.{value.id}" if isinstance(value := statement.value, ast.Name) and value.id in own else ""
            value = value or _expression(statement.value)
            lines += [f"$c.{_expression(target)} = {value};" for target in statement.targets]
    bases = [_expression(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases]
    kind = "true" if node.decorator_list else "false"
    body = "\n".join(lines)
    return f"$class({_text(node.name)}, [{', '.join(bases)}], {kind}, [{', '.join(fields)}], ($c) => {{\n{body}\n}})"


def _block(statements: list[ast.stmt]) -> str:
    return "".join(_statement(statement) + "\n" for statement in statements)


def _statement(node: ast.stmt) -> str:
    match node:
        case ast.Expr(ast.Constant()) | ast.Pass() | ast.AnnAssign(value=None):
            return ""
        case ast.Expr(value):
            return f"{_expression(value)};"
        case ast.Return(value):
            return f"return {_expression(value)};" if value else "return null;"
        case ast.FunctionDef():
            return f"{_name(node.name)} = {_function(node)};"
        case ast.ClassDef():
            return f"{_name(node.name)} = {_class(node)};"
        case ast.ImportFrom(module, names):
            return " ".join(f"{_name(one.asname or one.name)} = {_imported(module, one.name)};" for one in names)
        case ast.Assign(targets, value):
            first, *others = targets
            return _assign(first, _expression(value)) + "".join(_assign(one, _expression(first)) for one in others)
        case ast.AnnAssign(target, _, value) if value:
            return _assign(target, _expression(value))
        case ast.AugAssign(target, operator, value):
            return _assign(target, f"{OPERATORS[type(operator)]}({_expression(target)}, {_expression(value)})")
        case ast.If(test, body, orelse):
            return f"if ({_test(test)}) {{\n{_block(body)}}}" + (f" else {{\n{_block(orelse)}}}" if orelse else "")
        case ast.For(target, iterable, body, []):
            return f"for ({_expression(target)} of {_expression(iterable)}) {{\n{_block(body)}}}"
        case ast.While(test, body, []):
            return f"while ({_test(test)}) {{\n{_block(body)}}}"
        case ast.Continue() | ast.Break():
            return f"{type(node).__name__.lower()};"
        case ast.Raise(exc) if exc:
            return f"throw {_expression(exc)};"
        case ast.Delete([ast.Subscript(value, key)]):
            return f"{_expression(value)}.$delete({_expression(key)});"
        case ast.Try(body, [ast.ExceptHandler(kind, name, handler)], [], []) if kind:
            caught = f"let {_name(name)} = $error;\n" if name else ""
            otherwise = f"if (!isinstance($error, {_expression(kind)})) throw $error;\n"
            return f"try {{\n{_block(body)}}} catch ($error) {{\n{otherwise}{caught}{_block(handler)}}}"
    raise TypeError(f"not translated: {ast.unparse(node)}")


def _assign(target: ast.expr, value: str) -> str:
    if isinstance(target, ast.Subscript):
        return f"$set({_expression(target.value)}, {_expression(target.slice)}, {value});"
    if isinstance(target, ast.Tuple):
        for at, one in enumerate(target.elts):
            if isinstance(one, ast.Starred):
                plain = [*target.elts[:at], one.value, *target.elts[at + 1 :]]
                return f"[{_list(plain)}] = $gathered({value}, {at}, {len(plain) - at - 1});"
    return f"{_expression(target)} = {value};"


def _test(node: ast.expr) -> str:
    """A condition, true as Python has it."""
    match node:
        case ast.Compare():
            return _expression(node)
        case ast.UnaryOp(ast.Not(), operand):
            return f"!{_test(operand)}"
        case ast.BoolOp(operator, values):
            return f"({(' && ' if isinstance(operator, ast.And) else ' || ').join(map(_test, values))})"
    return f"$true({_expression(node)})"


def _list(nodes: Iterable[ast.expr]) -> str:
    return ", ".join(map(_expression, nodes))


def _expression(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(bool() | None as value):
            return {None: "null", True: "true", False: "false"}[value]
        case ast.Constant(int() as value):
            return f"{value}n"
        case ast.Constant(str() | float() as value):
            return _text(value)
        case ast.Name("_", ast.Store()) | ast.Starred(ast.Name("_", ast.Store())):
            return ""  # a hole in what a tuple is assigned to
        case ast.Name(name):
            return _name(name)
        case ast.Attribute(value, name):
            return f"{_expression(value)}.{name}"
        case ast.Starred(value):
            return f"...{_expression(value)}"
        case ast.Tuple(elements, context):
            listed = f"[{_list(elements)}]"
            return f"$tuple({listed})" if isinstance(context, ast.Load) else listed
        case ast.List(elements):
            return f"[{_list(elements)}]"
        case ast.Set(elements):
            return f"set([{_list(elements)}])"
        case ast.Dict(keys, values):
            pairs = (
                f"...{_expression(value)}.items()" if key is None else f"[{_expression(key)}, {_expression(value)}]"
                for key, value in zip(keys, values, strict=True)
            )
            return f"dict([{', '.join(pairs)}])"
        case ast.BinOp(left, operator, right):
            return f"{OPERATORS[type(operator)]}({_expression(left)}, {_expression(right)})"
        case ast.UnaryOp(ast.Not()):
            return _test(node)
        case ast.UnaryOp(ast.USub(), operand):
            return f"$neg({_expression(operand)})"
        case ast.BoolOp(operator, [*values, last]):
            result = _expression(last)
            for value in reversed(values):
                name = "$and" if isinstance(operator, ast.And) else "$or"
                result = f"{name}({_expression(value)}, () => {result})"
            return result
        case ast.Compare(left, [operator], [right]):
            return f"{OPERATORS[type(operator)]}({_expression(left)}, {_expression(right)})"
        case ast.Compare(left, operators, comparators):
            sides = list(map(_expression, [left, *comparators]))
            return (
                "("
                + " && ".join(
                    f"{OPERATORS[type(one)]}({sides[at]}, {sides[at + 1]})" for at, one in enumerate(operators)
                )
                + ")"
            )
        case ast.IfExp(test, body, orelse):
            return f"({_test(test)} ? {_expression(body)} : {_expression(orelse)})"
        case ast.NamedExpr(target, value):
            return f"({_expression(target)} = {_expression(value)})"
        case ast.Lambda(args, body):
            return f"(({', '.join(_name(one.arg) for one in args.args)}) => {_expression(body)})"
        case ast.Subscript(value, ast.Slice(low, high, None)):
            return f"$slice({_expression(value)}, {_expression(low)}, {_expression(high)})"
        case ast.Subscript(value, key):
            return f"$item({_expression(value)}, {_expression(key)})"
        case ast.JoinedStr(values):
            return "(" + " + ".join([_text(""), *map(_expression, values)]) + ")"
        case ast.FormattedValue(value, conversion, spec):
            shown = f"repr({_expression(value)})" if conversion == ord("r") else _expression(value)
            return f"$format({shown}, {_expression(spec or ast.Constant(''))})"
        case ast.Call(ast.Name(name), [_, entries]) if name in UNNEEDED:
            return _expression(entries)
        case ast.Call(function, arguments, keywords):
            passed = [_bound(one) for one in arguments]
            if keywords:
                pairs = (
                    f"{one.arg}: {_expression(one.value)}" if one.arg else f"...$named({_expression(one.value)})"
                    for one in keywords
                )
                passed.append(f"{{__proto__: $k, {', '.join(pairs)}}}")
            called = _expression(function)
            if isinstance(function, ast.Attribute) and function.attr in NATIVE:
                called = f"{_expression(function.value)}.${function.attr}"
            return f"{called}({', '.join(passed)})"
        case ast.GeneratorExp(element, loops):
            return _loops(loops, _expression(element))
        case ast.ListComp(element, loops):
            return f"[...{_loops(loops, _expression(element))}]"
        case ast.SetComp(element, loops):
            return f"set({_loops(loops, _expression(element))})"
        case ast.DictComp(key, value, loops):
            return f"dict({_loops(loops, f'[{_expression(key)}, {_expression(value)}]')})"
        case ast.Yield(value):
            return f"yield {_expression(value)}"
        case None:
            return "null"
    raise TypeError(f"not translated: {ast.unparse(node)}")


def _bound(node: ast.expr) -> str:
    """An argument; a method among them is bound to its object."""
    if isinstance(node, ast.Attribute):
        return f"getattr({_expression(node.value)}, {_text(node.attr)})"
    return _expression(node)


def _imported(module: str | None, name: str) -> str:
    """Return what `from module import name` gives: a module or what stands in one."""
    if _is_package(module):
        return f"$load({_text(f'{module}.{name}')})"
    return f"$load({_text(module)}).{_name(name)}"


def _names_of(module: str, name: str) -> Iterator[tuple[str, str]]:
    """Return what an import needs of this package: a name, or all functions of a module."""
    if _is_package(module):
        imported = importlib.import_module(f"{module}.{name}")
        yield from ((f"{module}.{name}", one) for one, value in vars(imported).items() if callable(value))
    elif module.startswith("accounting."):
        yield module, name


def _is_package(module: str | None) -> bool:
    return str(module).startswith("accounting.") and hasattr(importlib.import_module(str(module)), "__path__")


def _loops(loops: list[ast.comprehension], element: str) -> str:
    """A generator over loops; the first iterable is computed outside, as its names may be those of the loops."""
    code = f"yield {element};"
    for at, loop in reversed(list(enumerate(loops))):
        tests = "".join(f"if ({_test(test)}) " for test in loop.ifs)
        iterable = _expression(loop.iter) if at else "$first"
        code = f"for (const {_expression(loop.target)} of {iterable}) {tests}{code}"
    return f"(function* ($first) {{ {code} }})({_expression(loops[0].iter)})"


def main() -> int:
    """Write formulas.js, or with --check compare it."""
    sys.path.insert(0, str(SOURCE))
    text = program(ROOTS)
    if "--check" not in sys.argv[1:]:
        OUT.write_text(text, encoding="utf-8")
    elif not OUT.exists() or OUT.read_text(encoding="utf-8") != text:
        print(f"{OUT.name} is not that of today's formulas: run python {Path(__file__).name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
