"""Chat templates for a page: a Jinja template compiled to a JavaScript function, for assets/template.js to run.

Jinja parses it, as everywhere in lm; what is emitted calls template.js, which has Python's notions of truth, equality,
strings and lists. What chat templates do not use (inheritance, includes, call blocks) is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from jinja2 import nodes

from lm.chat_template import environment

BINARY = {
    nodes.Add: "add", nodes.Sub: "subtract", nodes.Mul: "multiply", nodes.Div: "divide", nodes.FloorDiv: "floorDivide",
    nodes.Mod: "modulo", nodes.Pow: "power",
}  # fmt: skip


def javascript(source: str) -> str:
    """A template as a JavaScript function of its variables, an object without a prototype, that returns the text.

    ValueError: it is not a Jinja template, or does something that a page does not.
    """
    import jinja2

    try:
        tree = environment().parse(source)
    except jinja2.TemplateError as error:
        raise ValueError(f"the chat template is not a Jinja template: {error}") from None
    return "(scope) => {\n" + function_body(tree.body) + "\n}"


def function_body(body: Sequence[nodes.Node]) -> str:
    """Statements that return what they write."""
    return f"const out = [];\n{statements(body)}\nreturn out.join('');"


def statements(body: Sequence[nodes.Node]) -> str:
    return "\n".join(map(statement, body))


def statement(node: nodes.Node) -> str:
    """A statement; `scope` and `out` are JavaScript's variables for where names are looked up and what is written."""
    match node:
        case nodes.Output():
            return " ".join(f"out.push(py.text({expression(part)}));" for part in node.nodes)
        case nodes.If():
            branches = [(node.test, node.body), *((branch.test, branch.body) for branch in node.elif_)]
            text = " else ".join(
                f"if (py.truth({expression(test)})) {{\n{statements(body)}\n}}" for test, body in branches
            )
            return text + (f" else {{\n{statements(node.else_)}\n}}" if node.else_ else "")
        case nodes.For() if not node.recursive:
            test = f"py.truth({expression(node.test)})" if node.test else "true"
            inner = f"const scope = py.within(outer); {assign(node.target, 'item')}"
            items = f"py.list({expression(node.iter)}).filter((item) => {{ {inner} return {test}; }})"
            begin = f"const item = items[i]; {inner} scope.loop = py.loop(items, i);"
            loop = f"for (let i = 0; i < items.length; i++) {{\n{begin}\n{statements(node.body)}\n}}"
            text = f"{{ const outer = scope, items = {items};\n{loop}"
            return text + (f" if (!items.length) {{\n{statements(node.else_)}\n}} }}" if node.else_ else " }")
        case nodes.Assign():
            return f"{{ const value = {expression(node.node)}; {assign(node.target, 'value')} }}"
        case nodes.AssignBlock() if node.filter is None:
            return f"{{ const value = (() => {{ {function_body(node.body)} }})(); {assign(node.target, 'value')} }}"
        case nodes.Macro():
            names = json.dumps([argument.name for argument in node.args])
            missing = len(node.args) - len(node.defaults)
            defaults = "".join(
                f"if (!(names[{missing + i}] in scope)) scope[names[{missing + i}]] = {expression(value)};\n"
                for i, value in enumerate(node.defaults)
            )
            begin = f"const names = {names}, scope = py.called(outer, names, args, named);"
            body = f"{begin}\n{defaults}{function_body(node.body)}"
            return f"{{ const outer = scope; scope[{json.dumps(node.name)}] = (args, named) => {{\n{body}\n}}; }}"
        case nodes.With():
            pairs = zip(node.targets, node.values, strict=True)
            sets = " ".join(
                f"{{ const value = {expression(value)}; {assign(target, 'value')} }}" for target, value in pairs
            )
            return f"{{ const outer = scope; {{ const scope = py.within(outer); {sets}\n{statements(node.body)}\n}} }}"
        case nodes.CallBlock() if isinstance(node.call.node, nodes.ExtensionAttribute):
            return statements(node.body)  # {% generation %}
        case nodes.Continue():
            return "continue;"
        case nodes.Break():
            return "break;"
    raise refused(node)


def assign(target: nodes.Node, value: str) -> str:
    """Store the JavaScript expression `value`."""
    match target:
        case nodes.Name():
            return f"scope[{json.dumps(target.name)}] = {value};"
        case nodes.NSRef():
            return f"scope[{json.dumps(target.name)}].set({json.dumps(target.attr)}, {value});"
        case nodes.Tuple():
            return " ".join(assign(part, f"{value}[{i}]") for i, part in enumerate(target.items))
    raise refused(target)


def expression(node: nodes.Node) -> str:
    match node:
        case nodes.TemplateData():
            return json.dumps(node.data)
        case nodes.Const():
            return json.dumps(node.value)
        case nodes.Name():
            return f"scope[{json.dumps(node.name)}]"
        case nodes.Getattr():
            return f"py.attribute({expression(node.node)}, {json.dumps(node.attr)})"
        case nodes.Getitem() if isinstance(node.arg, nodes.Slice):
            bounds = (node.arg.start, node.arg.stop, node.arg.step)
            return f"py.slice({expression(node.node)}, {', '.join(map(optional, bounds))})"
        case nodes.Getitem():
            return f"py.item({expression(node.node)}, {expression(node.arg)})"
        case nodes.Call() if isinstance(node.node, nodes.Getattr):
            name = json.dumps(node.node.attr)
            return f"py.method({expression(node.node.node)}, {name}, {arguments(node)})"
        case nodes.Call():
            return f"py.call({expression(node.node)}, {arguments(node)})"
        case nodes.Filter() if node.node is not None:
            return f"py.filter({json.dumps(node.name)}, {expression(node.node)}, {arguments(node)})"
        case nodes.Test():
            return f"py.test({json.dumps(node.name)}, {expression(node.node)}, {arguments(node)})"
        case nodes.Compare():
            first, parts = node.expr, list[str]()
            for operand in node.ops:
                parts.append(f"py.compare({json.dumps(operand.op)}, {expression(first)}, {expression(operand.expr)})")
                first = operand.expr
            return f"({' && '.join(parts)})"
        case nodes.And():
            return f"py.and({expression(node.left)}, () => {expression(node.right)})"
        case nodes.Or():
            return f"py.or({expression(node.left)}, () => {expression(node.right)})"
        case nodes.Not():
            return f"!py.truth({expression(node.node)})"
        case nodes.Neg():
            return f"-({expression(node.node)})"
        case nodes.Concat():
            return f"[{', '.join(map(expression, node.nodes))}].map(py.text).join('')"
        case nodes.CondExpr():
            other = expression(node.expr2) if node.expr2 else "undefined"
            return f"(py.truth({expression(node.test)}) ? {expression(node.expr1)} : {other})"
        case nodes.List() | nodes.Tuple():
            return f"[{', '.join(map(expression, node.items))}]"
        case nodes.Dict():
            pairs = ", ".join(f"[{expression(pair.key)}, {expression(pair.value)}]" for pair in node.items)
            return f"new Map([{pairs}])"
    if type(node) in BINARY and isinstance(node, nodes.BinExpr):
        return f"py.{BINARY[type(node)]}({expression(node.left)}, {expression(node.right)})"
    raise refused(node)


def optional(node: nodes.Node | None) -> str:
    return "null" if node is None else expression(node)


def arguments(node: nodes.Call | nodes.Filter | nodes.Test) -> str:
    """[those by position], {those by name}."""
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        raise refused(node)
    named = ", ".join(f"{json.dumps(pair.key)}: {expression(pair.value)}" for pair in node.kwargs)
    return f"[{', '.join(map(expression, node.args))}], {{{named}}}"


def refused(node: nodes.Node) -> ValueError:
    return ValueError(f"the chat template has a {type(node).__name__} in line {node.lineno}, which a page does not run")
