"""Kernels have no types that a checker reads, so this reads the code: every kernel is called, with what it takes."""

import ast
from importlib import import_module
from pathlib import Path

import pytest
from numba.core.errors import TypingError

PACKAGE = Path(__file__).parents[1] / "src" / "percolab"
DECORATORS = ("kernel", "inlined")


def module_of(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


TREES = {module_of(path): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def is_kernel(node):
    decorators = [d.func if isinstance(d, ast.Call) else d for d in getattr(node, "decorator_list", ())]
    return any(getattr(d, "id", getattr(d, "attr", "")) in DECORATORS for d in decorators)


KERNELS = {
    f"{module}.{node.name}": [argument.arg for argument in node.args.args]
    for module, tree in TREES.items()
    for node in tree.body
    if isinstance(node, ast.FunctionDef) and is_kernel(node)
}


def names_in(module, tree):
    """Return what the names of a module stand for: its own functions, and what it imports."""
    names = {node.name: f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def meaning(function, names):
    """Return the dotted name of what is called."""
    if isinstance(function, ast.Name):
        return names.get(function.id)
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{names.get(function.value.id)}.{function.attr}"
    return None


def uses():
    """Yield every kernel that a module names, with the call if it is one."""
    for module, tree in TREES.items():
        names = names_in(module, tree)
        calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name | ast.Attribute) and meaning(node, names) in KERNELS:
                yield meaning(node, names), calls.get(id(node)), f"{module}:{node.lineno}"


def wrong(kernel, call):
    """Return whether a call gives another number of arguments than a kernel takes, or names one that it lacks."""
    takes = KERNELS[kernel]
    named = [keyword.arg for keyword in call.keywords]
    if None in named or any(isinstance(argument, ast.Starred) for argument in call.args):
        return len([a for a in call.args if not isinstance(a, ast.Starred)]) + len(named) > len(takes)
    return len(call.args) + len(named) != len(takes) or not set(named) <= set(takes)


def test_every_call_of_a_kernel_gives_what_it_takes():
    assert len(KERNELS) > 200
    assert not [f"{place} calls {kernel}" for kernel, call, place in uses() if call is not None and wrong(kernel, call)]


def test_every_kernel_is_used():
    assert KERNELS.keys() - {kernel for kernel, _, _ in uses()} == set()


@pytest.mark.parametrize("call", ["_prefixes(values)", "_prefixes(values, 1, 2)", "_prefixes(values, x=1)"])
def test_a_wrong_call_is_seen(call, monkeypatch):
    monkeypatch.setitem(KERNELS, "percolab.planted._prefixes", ["values", "start"])
    assert wrong("percolab.planted._prefixes", ast.parse(call).body[0].value)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, arguments in KERNELS.items() if arguments])
def test_a_kernel_refuses_what_is_neither_a_number_nor_an_array(name):
    module, _, function = name.rpartition(".")
    with pytest.raises(TypingError, match="Failed in nopython mode"):
        getattr(import_module(module), function)(*["text"] * len(KERNELS[name]))
