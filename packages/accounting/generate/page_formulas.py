"""Write src/accounting/page/formulas.js: the formulas of accounting in JavaScript, translated from their Python.

    python packages/accounting/generate/page_formulas.py             writes it
    python packages/accounting/generate/page_formulas.py --check     status 1 if it is not up to date

An int becomes a BigInt and a float a Number, so that integers stay exact; operators, built-in functions and methods
become calls of runtime.js, which have Python's meaning. A construct that is not here is refused by its place in the
file, so that nothing is translated to something else.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
OUT = SOURCE / "accounting/page/formulas.js"
sys.path.insert(0, str(SOURCE))
OPERATORS = {
    **{ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod"},
    **{ast.Pow: "pow", ast.BitOr: "bitor", ast.BitAnd: "bitand", ast.LShift: "shift"},
}
COMPARISONS = {
    **{ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"},
    **{ast.In: "has", ast.NotIn: "hasnt", ast.Is: "is", ast.IsNot: "isnt"},
}
BUILTINS = {
    *("abs", "all", "any", "bool", "dict", "divmod", "enumerate", "filter", "float", "frozenset", "getattr", "hasattr"),
    "hash",
    *("int", "isinstance", "iter", "len", "list", "map", "max", "min", "next", "object", "range", "repr", "reversed"),
    *("round", "set", "sorted", "str", "sum", "super", "tuple", "type", "zip"),
    *("KeyError", "NotImplemented", "TypeError", "ValueError", "property"),
}
METHODS = {  # of dict, list, set and str
    *("append", "extend", "fromkeys", "get", "index", "insert", "items", "join", "keys", "lower", "pop", "rstrip"),
    *("setdefault", "sort", "split", "startswith", "strip", "update", "values", "add", "replace", "endswith"),
}
LIBRARIES = {"dataclasses", "enum", "functools", "itertools", "difflib"}  # what runtime.js has of them
SKIPPED = {"__future__", "typing", "collections.abc", "csv", "os"}
RESERVED = {
    *("arguments", "await", "case", "catch", "const", "debugger", "default", "delete", "do", "enum", "eval", "export"),
    *("extends", "function", "implements", "instanceof", "interface", "let", "new", "null", "package", "private"),
    *("protected", "public", "static", "super", "switch", "this", "throw", "typeof", "undefined", "var", "void"),
}


class Untranslatable(Exception):
    """A construct that has no translation here."""


def translate(module: str, function: str, replaced: dict[str, str]) -> str:
    """Return the JavaScript of a function and of all in this package that it needs.

    Args:
        module: The name of its module.
        function: Its name.
        replaced: The JavaScript expression of a function's result or of a constant, by "module.name".

    Raises:
        Untranslatable: Something in them has no translation.
    """
    trees: dict[str, tuple[Path, ast.Module]] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        spec = find_spec(name)
        if name in trees or spec is None or spec.origin is None:
            continue
        path = Path(spec.origin)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tree.body = [node for node in tree.body if not _for_types(node)]
        trees[name] = path, tree
        waiting += _modules_of(tree, path, name)
    _drop_unused([tree for _, tree in trees.values()], function)
    methods = {
        node.name
        for _, tree in trees.values()
        for made in ast.walk(tree)
        if isinstance(made, ast.ClassDef)
        for node in made.body
        if isinstance(node, ast.FunctionDef) and not node.decorator_list
    }
    return "\n".join(_Module(name, path, replaced, methods).module(tree) for name, (path, tree) in trees.items())


def _modules_of(tree: ast.Module, path: Path, name: str) -> list[str]:
    """The modules of this package that one imports from, at its top or in a function."""
    modules = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("accounting."):
            source = str(node.module)
            folder = path.parents[name.count(".") - 1].joinpath(*source.split(".")[1:])
            modules += [source, *(f"{source}.{one.name}" for one in node.names if (folder / f"{one.name}.py").exists())]
    return modules


def _drop_unused(trees: list[ast.Module], root: str) -> None:
    """Take from modules the functions, classes and imports whose names none of what is left uses."""
    dropped = True
    while dropped:
        used, dropped = {root}, False
        for tree in trees:
            for node in tree.body:
                own = {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set()
                names = {
                    one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
                }
                used |= (names | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}) - own
        for tree in trees:
            for imports in ast.walk(tree):
                if isinstance(imports, ast.ImportFrom):
                    imports.names = [alias for alias in imports.names if (alias.asname or alias.name) in used]
            body = [
                node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name in used
            ]
            dropped, tree.body = dropped or len(body) < len(tree.body), body


class _Module:
    """The translation of one module. Each method returns JavaScript; names of methods are those of Python's nodes."""

    def __init__(self, name: str, path: Path, replaced: dict[str, str], methods: set[str]) -> None:
        self.name, self.path, self.replaced, self.methods = name, path, replaced, methods
        self.globals: set[str] = set()
        self.temporaries = 0

    def module(self, tree: ast.Module) -> str:
        body = tree.body
        self.globals = _assigned(body)
        lines = self.block(body)
        exported = sorted(self.globals)
        names = ", ".join(f"{name}: () => {_name(name)}" for name in exported)
        declared = self.declare(self.globals - {node.name for node in body if isinstance(node, ast.FunctionDef)})
        return f'$.module("{self.name}", () => {{\n{declared}{lines}\nreturn {{{names}}};\n}});'

    def refuse(self, node: ast.AST, what: str = "") -> Untranslatable:
        return Untranslatable(
            f"{self.path}:{getattr(node, 'lineno', 0)}: {what or type(node).__name__} is not translated"
        )

    def declare(self, names: Iterable[str]) -> str:
        ordered = ", ".join(_name(name) for name in sorted(names))
        return f"let {ordered};\n" if ordered else ""

    # statements

    def block(self, body: list[ast.stmt]) -> str:
        return "\n".join(self.statement(node) for node in body if not _docstring(node) and not _for_types(node))

    def statement(self, node: ast.stmt) -> str:
        method = getattr(self, f"do_{type(node).__name__}", None)
        if method is None:
            raise self.refuse(node)
        return str(method(node))

    def do_Import(self, node: ast.Import) -> str:
        lines = []
        for alias in node.names:
            if alias.name not in SKIPPED:
                if alias.name not in LIBRARIES:
                    raise self.refuse(node, f"import {alias.name}")
                lines.append(f"{_name(alias.asname or alias.name)} = $.libraries.{alias.name};")
        return "\n".join(lines)

    def do_ImportFrom(self, node: ast.ImportFrom) -> str:
        module = node.module or ""
        if module in SKIPPED and module != "collections.abc":
            return ""
        if module in LIBRARIES or module == "collections.abc":
            return "\n".join(
                f"{_name(a.asname or a.name)} = $.libraries.{module.replace('.', '_')}.{a.name};" for a in node.names
            )
        if not module.startswith("accounting"):
            raise self.refuse(node, f"import of {module}")
        return "\n".join(f'{_name(a.asname or a.name)} = $.from("{module}", "{a.name}");' for a in node.names)

    def do_FunctionDef(self, node: ast.FunctionDef) -> str:
        replaced = self.replaced.get(f"{self.name}.{node.name}")
        if replaced:
            return f"const {_name(node.name)} = $.fn([], () => {replaced});"
        return f"const {_name(node.name)} = {self.function(node)};"

    def function(self, node: ast.FunctionDef, method: bool = False) -> str:
        arguments = node.args
        names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        values = [None] * (len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults))
        defaults = [*values, *arguments.defaults, *arguments.kw_defaults]
        first = names.pop(0) if method else None
        if method:
            defaults.pop(0)
        parameters = [
            _name(name) + ("" if default is None else f" = {self.value(default)}")
            for name, default in zip(names, defaults, strict=True)
        ]
        rest = ""
        if arguments.vararg:
            if arguments.kwonlyargs or arguments.kwarg:
                raise self.refuse(node, "* beside keywords")
            parameters.append(f"...{_name(arguments.vararg.arg)}")
        if arguments.kwarg:
            names.append("**")
            parameters.append(f"{_name(arguments.kwarg.arg)} = $.dict([])")
        assigned = _assigned(node.body) - {*names, first or "", arguments.kwarg.arg if arguments.kwarg else ""}
        functions = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
        body = self.declare(assigned - functions) + rest + self.block(node.body)
        star = "*" if any(isinstance(inner, ast.Yield) for inner in _inside(node.body)) else ""
        me = f"const {_name(first)} = this;\n" if first else ""
        signature = json.dumps(names)
        text = f"function{star} ({', '.join(parameters)}) {{\n{me}{body}\n}}"
        return f"$.fn({signature}, {text})"

    def do_ClassDef(self, node: ast.ClassDef) -> str:
        bases = ", ".join(self.value(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases)
        options = [self.decorator(one) for one in node.decorator_list]
        members, fields = [], []
        keywords_only = "false"
        for inner in node.body:
            if _docstring(inner) or isinstance(inner, ast.Pass) or _for_types(inner):
                continue
            if isinstance(inner, ast.FunctionDef):
                kinds = [self.decorator(one) for one in inner.decorator_list]
                kind = "static" if "staticmethod" in kinds else kinds[0] if kinds else "method"
                if inner.name == "__new__":
                    kind = "new"
                members.append(f'["{kind}", "{inner.name}", {self.function(inner, kind not in ("static", "new"))}]')
            elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                if ast.unparse(inner.annotation) == "KW_ONLY":
                    keywords_only = "true"
                    continue
                default = "undefined" if inner.value is None else f"() => {self.value(inner.value)}"
                fields.append(f'["{inner.target.id}", {default}, {keywords_only}]')
            elif isinstance(inner, ast.Assign) and all(isinstance(one, ast.Name) for one in inner.targets):
                name = inner.targets[0].id  # type: ignore[attr-defined]
                if isinstance(inner.value, ast.Name) and inner.value.id.startswith("__"):
                    members.append(f'["alias", "{name}", "{inner.value.id}"]')
                elif isinstance(inner.value, ast.Attribute) and inner.value.attr == "__hash__":
                    continue
                else:
                    names = ", ".join(f'"{one.id}"' for one in inner.targets if isinstance(one, ast.Name))
                    members.append(f'["value", [{names}], {self.value(inner.value)}]')
            else:
                raise self.refuse(inner)
        dataclass = "true" if "dataclass" in options else "false"
        listed = ",\n".join(members)
        head = f'"{node.name}", [{bases}], {dataclass}, [{", ".join(fields)}]'
        return f"{_name(node.name)} = $.class({head}, [\n{listed}\n]);"

    def decorator(self, node: ast.expr) -> str:
        named = node.func if isinstance(node, ast.Call) else node
        if isinstance(named, ast.Name) and named.id in (
            *("property", "cached_property", "dataclass", "staticmethod", "classmethod", "lru_cache"),
        ):
            return named.id
        raise self.refuse(node, f"the decorator {ast.unparse(node)}")

    def do_Return(self, node: ast.Return) -> str:
        return f"return {self.value(node.value) if node.value else 'null'};"

    def do_Assign(self, node: ast.Assign) -> str:
        replaced = self.replaced.get(f"{self.name}.{ast.unparse(node.targets[0])}")
        value = replaced or self.value(node.value)
        if len(node.targets) == 1:
            return self.assign(node.targets[0], value)
        temporary = self.temporary()
        return f"const {temporary} = {value};\n" + "\n".join(self.assign(one, temporary) for one in node.targets)

    def do_AnnAssign(self, node: ast.AnnAssign) -> str:
        return "" if node.value is None else self.assign(node.target, self.value(node.value))

    def assign(self, target: ast.expr, value: str) -> str:
        if isinstance(target, ast.Name):
            return f"{_name(target.id)} = {value};"
        if isinstance(target, ast.Attribute):
            return f"{self.value(target.value)}.{target.attr} = {value};"
        if isinstance(target, ast.Subscript):
            return f"$.set_item({self.value(target.value)}, {self.value(target.slice)}, {value});"
        if isinstance(target, ast.Tuple):
            return f"{self.pattern(target, value)};"
        raise self.refuse(target)

    def pattern(self, target: ast.expr, value: str) -> str:
        """An assignment to the names of a tuple, as an expression."""
        assert isinstance(target, ast.Tuple)
        stars = [i for i, one in enumerate(target.elts) if isinstance(one, ast.Starred)]
        size = len(target.elts)
        source = f"$.unpack({value}, {size}n, {stars[0] if stars else -1}n)"
        names = (self.names(one.value if isinstance(one, ast.Starred) else one) for one in target.elts)
        return f"[{', '.join(names)}] = {source}"

    def names(self, target: ast.expr) -> str:
        if isinstance(target, ast.Starred):
            return f"...{self.names(target.value)}"
        if isinstance(target, ast.Name):
            return _name(target.id)
        if isinstance(target, ast.Tuple):
            return f"[{', '.join(map(self.names, target.elts))}]"
        if isinstance(target, ast.Attribute):
            return f"{self.value(target.value)}.{target.attr}"
        raise self.refuse(target)

    def do_AugAssign(self, node: ast.AugAssign) -> str:
        operator = OPERATORS[type(node.op)]
        if isinstance(node.op, ast.Add):
            operator = "iadd"
        current = ast.copy_location(ast.parse(ast.unparse(node.target), mode="eval").body, node)
        return self.assign(node.target, f"$.{operator}({self.value(current)}, {self.value(node.value)})")

    def do_Expr(self, node: ast.Expr) -> str:
        return f"{self.value(node.value)};"

    def do_If(self, node: ast.If) -> str:
        text = f"if ({self.test(node.test)}) {{\n{self.block(node.body)}\n}}"
        return text + (f" else {{\n{self.block(node.orelse)}\n}}" if node.orelse else "")

    def do_For(self, node: ast.For) -> str:
        if node.orelse:
            raise self.refuse(node, "for … else")
        one = self.temporary()
        head = self.assign(node.target, one)
        return f"for (const {one} of $.iter({self.value(node.iter)})) {{\n{head}\n{self.block(node.body)}\n}}"

    def do_While(self, node: ast.While) -> str:
        return f"while ({self.test(node.test)}) {{\n{self.block(node.body)}\n}}"

    def do_Raise(self, node: ast.Raise) -> str:
        assert node.exc is not None
        return f"throw {self.value(node.exc)};"

    def do_Try(self, node: ast.Try) -> str:
        (handler,) = node.handlers
        if handler.type is None or node.finalbody or node.orelse:
            raise self.refuse(node)
        caught = f"if (!$.isinstance($error, {self.value(handler.type)})) throw $error;"
        if handler.name:
            caught += f" const {_name(handler.name)} = $error;"
        return f"try {{\n{self.block(node.body)}\n}} catch ($error) {{\n{caught}\n{self.block(handler.body)}\n}}"

    def do_Delete(self, node: ast.Delete) -> str:
        lines = []
        for target in node.targets:
            assert isinstance(target, ast.Subscript)
            lines.append(f"$.del_item({self.value(target.value)}, {self.value(target.slice)});")
        return "\n".join(lines)

    def do_Assert(self, node: ast.Assert) -> str:
        return ""

    def do_Pass(self, node: ast.Pass) -> str:
        return ""

    def do_Continue(self, node: ast.Continue) -> str:
        return "continue;"

    def do_Break(self, node: ast.Break) -> str:
        return "break;"

    # expressions

    def temporary(self) -> str:
        self.temporaries += 1
        return f"$${self.temporaries}"

    def value(self, node: ast.expr) -> str:
        method = getattr(self, f"of_{type(node).__name__}", None)
        if method is None:
            raise self.refuse(node)
        return str(method(node))

    def test(self, node: ast.expr) -> str:
        """An expression of which only the truth matters."""
        if isinstance(node, ast.BoolOp):
            joined = (" && " if isinstance(node.op, ast.And) else " || ").join(map(self.test, node.values))
            return f"({joined})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"!{self.test(node.operand)}"
        if isinstance(node, ast.Compare):
            return self.value(node)
        return f"$.truth({self.value(node)})"

    def of_Constant(self, node: ast.Constant) -> str:
        value = node.value
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return f"{value}n"
        if isinstance(value, float):
            return repr(value)
        if isinstance(value, str):
            return json.dumps(value, ensure_ascii=False)
        raise self.refuse(node)

    def of_Name(self, node: ast.Name) -> str:
        if node.id in BUILTINS and node.id not in self.globals:
            return f"$.{node.id}"
        return _name(node.id)

    def of_Attribute(self, node: ast.Attribute) -> str:
        if node.attr in self.methods:  # which is not called here: of_Call() has its own way
            return f'$.bound({self.value(node.value)}, "{node.attr}")'
        return f"{self.value(node.value)}.{node.attr}"

    def of_Call(self, node: ast.Call) -> str:
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in METHODS and not self.is_own(node.func):
                function = f"$.method({self.value(node.func.value)}, {json.dumps(node.func.attr)})"
            else:
                function = f"{self.value(node.func.value)}.{node.func.attr}"
        else:
            function = self.value(node.func)
        positional = ", ".join(map(self.value, node.args))
        if not node.keywords:
            return f"{function}({positional})"
        parts = []
        for keyword in node.keywords:
            if keyword.arg is None:
                parts.append(f"...$.as_object({self.value(keyword.value)})")
            else:
                parts.append(f"{keyword.arg}: {self.value(keyword.value)}")
        if isinstance(node.func, ast.Attribute) and not function.startswith("$.method"):
            owner = self.value(node.func.value)
            return f'$.call_method({owner}, "{node.func.attr}", [{positional}], {{{", ".join(parts)}}})'
        return f"$.call({function}, [{positional}], {{{', '.join(parts)}}})"

    def is_own(self, node: ast.Attribute) -> bool:
        """True for a method of a class of this package that has the name of a built-in one."""
        return (
            isinstance(node.value, ast.Name) and node.value.id in ("self", "run") and node.attr not in ("items", "get")
        )

    def of_BinOp(self, node: ast.BinOp) -> str:
        operator = OPERATORS.get(type(node.op))
        if operator is None:
            raise self.refuse(node.op)
        return f"$.{operator}({self.value(node.left)}, {self.value(node.right)})"

    def of_UnaryOp(self, node: ast.UnaryOp) -> str:
        if isinstance(node.op, ast.Not):
            return f"!{self.test(node.operand)}"
        if isinstance(node.op, ast.USub):
            return f"$.negative({self.value(node.operand)})"
        raise self.refuse(node)

    def of_BoolOp(self, node: ast.BoolOp) -> str:
        which = "and" if isinstance(node.op, ast.And) else "or"
        result = self.value(node.values[-1])
        for value in reversed(node.values[:-1]):
            result = f"$.{which}({self.value(value)}, () => {result})"
        return result

    def of_Compare(self, node: ast.Compare) -> str:
        left, parts = self.value(node.left), []
        for operator, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            parts.append(f"$.{COMPARISONS[type(operator)]}({left}, {right})")
            left = right
        return parts[0] if len(parts) == 1 else f"({' && '.join(parts)})"

    def of_IfExp(self, node: ast.IfExp) -> str:
        return f"({self.test(node.test)} ? {self.value(node.body)} : {self.value(node.orelse)})"

    def of_Tuple(self, node: ast.Tuple) -> str:
        return f"[{', '.join(map(self.value, node.elts))}]"

    def of_List(self, node: ast.List) -> str:
        return f"$.as_list([{', '.join(map(self.value, node.elts))}])"

    def of_Set(self, node: ast.Set) -> str:
        return f"$.set([{', '.join(map(self.value, node.elts))}])"

    def of_Dict(self, node: ast.Dict) -> str:
        parts = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                parts.append(f"...$.entries({self.value(value)})")
            else:
                parts.append(f"[{self.value(key)}, {self.value(value)}]")
        return f"$.dict([{', '.join(parts)}])"

    def of_Starred(self, node: ast.Starred) -> str:
        return f"...$.iter({self.value(node.value)})"

    def of_Lambda(self, node: ast.Lambda) -> str:
        if node.args.defaults or node.args.vararg or node.args.kwonlyargs:
            raise self.refuse(node)
        return f"(({', '.join(_name(one.arg) for one in node.args.args)}) => {self.value(node.body)})"

    def of_NamedExpr(self, node: ast.NamedExpr) -> str:
        return f"({_name(node.target.id)} = {self.value(node.value)})"

    def of_Subscript(self, node: ast.Subscript) -> str:
        if isinstance(node.slice, ast.Slice):
            if node.slice.step is not None:
                raise self.refuse(node.slice)
            ends = (self.value(one) if one else "null" for one in (node.slice.lower, node.slice.upper))
            return f"$.slice({self.value(node.value)}, {', '.join(ends)})"
        return f"$.item({self.value(node.value)}, {self.value(node.slice)})"

    def of_JoinedStr(self, node: ast.JoinedStr) -> str:
        parts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(json.dumps(part.value, ensure_ascii=False))
                continue
            assert isinstance(part, ast.FormattedValue)
            conversion = f'"{chr(part.conversion)}"' if part.conversion > 0 else '""'
            spec = self.value(part.format_spec) if part.format_spec else '""'
            parts.append(f"$.format({self.value(part.value)}, {conversion}, {spec})")
        return f"[{', '.join(parts)}].join('')"

    def of_Yield(self, node: ast.Yield) -> str:
        assert node.value is not None
        return f"yield {self.value(node.value)}"

    def comprehension(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp, element: str) -> str:
        lines, ends = [], ""
        for generator in node.generators:
            one = self.temporary()
            names = _names_of(generator.target)
            lines.append(f"for (const {one} of $.iter({self.value(generator.iter)})) {{")
            lines.append(self.declare(names) + self.assign(generator.target, one))
            lines += [f"if (!({self.test(condition)})) continue;" for condition in generator.ifs]
            ends += "}"
        body = "\n".join(lines)
        walrus = {inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)}
        return (
            f"(() => {{ {self.declare(walrus)}const $all = [];\n{body}\n$all.push({element});{ends} return $all; }})()"
        )

    def of_GeneratorExp(self, node: ast.GeneratorExp) -> str:
        return self.comprehension(node, self.value(node.elt))

    def of_ListComp(self, node: ast.ListComp) -> str:
        return f"$.as_list({self.comprehension(node, self.value(node.elt))})"

    def of_SetComp(self, node: ast.SetComp) -> str:
        return f"$.set({self.comprehension(node, self.value(node.elt))})"

    def of_DictComp(self, node: ast.DictComp) -> str:
        return f"$.dict({self.comprehension(node, f'[{self.value(node.key)}, {self.value(node.value)}]')})"


def _name(name: str) -> str:
    return f"{name}_" if name in RESERVED else name


def _docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _for_types(node: ast.stmt) -> bool:
    """True for what only type checkers read: the flag, and what it guards."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TYPE_CHECKING"


def _inside(body: list[ast.stmt]) -> Iterable[ast.AST]:
    """The nodes of a body that are not in a function of their own."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _names_of(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _assigned(body: list[ast.stmt]) -> set[str]:
    """The names that a body assigns, imports or defines, those of comprehensions not among them."""
    names: set[str] = set()
    skipped: set[ast.AST] = set()
    for node in _inside([one for one in body if not _for_types(one)]):
        if isinstance(node, ast.comprehension):
            skipped |= {*ast.walk(node.target)}
    for node in _inside([one for one in body if not _for_types(one)]):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in skipped:
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import):
            names |= {alias.asname or alias.name for alias in node.names if alias.name not in SKIPPED}
        elif isinstance(node, ast.ImportFrom) and (node.module not in SKIPPED or node.module == "collections.abc"):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def main() -> int:
    """Write the file, or compare it; 1 if it differs."""
    replaced: dict[str, str] = {}  # tables that the page holds: see accounting/page/__init__.py
    for module, table in (("hardware.devices", "devices"), ("planning.accuracy", "accuracy")):
        replaced |= {f"accounting.{module}.rows": f"DATA.{table}", f"accounting.{module}.TABLE": '""'}
    text = translate("accounting.page.questions", "answer", replaced) + "\n"
    if "--check" not in sys.argv[1:]:
        OUT.write_text(text, encoding="utf-8")
        return 0
    if OUT.read_text(encoding="utf-8") != text:
        print(f"{OUT} is not up to date: run python packages/accounting/generate/page_formulas.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
