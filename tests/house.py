"""The size of the house and its map, from the code itself.

    python tests/house.py            print code lines and modules of every room, and names that two modules share
    python tests/house.py --write    put the map into docs/how-it-works.md

A code line is one that holds more than a comment, a blank or a docstring. Arrows are imports, those inside functions
included; those for type checkers alone, and names that a package hands on when asked for, are left out.
"""

import ast
import collections
import io
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "percolab"
PAGE = ROOT / "docs" / "how-it-works.md"
BEGIN, END = "<!-- the map: python tests/house.py --write -->\n", "<!-- the end of the map -->\n"
NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
WALKS = {
    "`percolab generate`: a recipe becomes arrays": (
        "cli.generate", "worlds.generation", "dataset.dataset", "engines.native", "engines.native.growth",
        "engines.native.skeleton", "engines.native.splitting",
    ),
    "`streaming`: a store becomes batches": (
        "streaming", "loaders.streams", "store.finished", "store.stored_array", "store.chunks",
        "store.byte_sources",
    ),
    "`percolab represent`: data become a verdict": (
        "cli.experiments", "experiments.runs", "study.experiment", "study.material", "nn.training.training",
        "nn.networks.model",
    ),
}  # fmt: skip
"""Ways through the house; each module imports the next."""


def module_name(path):
    """Return the dotted name of a module below the package; that of the package itself is empty."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def code_lines(text):
    """Return the number of lines of code."""
    docs, lines = set(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            docs.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docs)


def imports(tree):
    """Return what a module imports of the package, as dotted names below it."""
    found = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "percolab":
            base = node.module.removeprefix("percolab").removeprefix(".")
            found |= {base, *(f"{base}.{alias.name}".removeprefix(".") for alias in node.names)}
        found |= imports(node)
    return found


def read():
    """Return, by module: the lines of code, the modules it imports, and the first line of its docstring."""
    trees = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    house = {}
    for name, path in trees.items():
        text = path.read_text()
        tree = ast.parse(text)
        doc = (ast.get_docstring(tree) or "").partition("\n")[0]
        house[name] = code_lines(text), (imports(tree) & trees.keys()) - {name, ""}, doc
    return house


def rooms(house):
    """Return, by room, its modules, its lines, and the rooms it imports from."""
    found = collections.defaultdict(lambda: [0, 0, set()])
    for name, (lines, imported, _) in house.items():
        room = found[name.partition(".")[0]]
        room[0] += 1
        room[1] += lines
        room[2] |= {other.partition(".")[0] for other in imported} - {name.partition(".")[0]}
    return found


def repeated():
    """Return the names that modules of two rooms have; a module of the command line may be called as its room."""
    paths = [path for path in PACKAGE.rglob("*.py") if path.stem != "__init__" and path.parent.name != "cli"]
    return sorted(name for name, count in collections.Counter(path.stem for path in paths).items() if count > 1)


def layers():
    """Return the rooms from the top down, as the contracts name them."""
    import tomllib

    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(one["layers"] for one in contracts if one.get("containers") == ["percolab"])


def drawn(house):
    """Return the map: the rooms with what each stands on, and the walks."""
    found, order = rooms(house), layers()
    lines = ["```text"]
    for name in order:
        below = [room for room in order if room in found[name][2]]
        lines.append(f"{name:12}→ {' '.join(below)}" if below else name)
    lines.append("```")
    for title, names in WALKS.items():
        lines += ["", f"{title}:", ""]
        for name, following in zip(names, (*names[1:], None), strict=True):
            if following is not None and following not in house[name][1]:
                raise ValueError(f"{name} must import {following}, which is the next on the walk")
            lines.append(f"- `{name}`: {house[name][2]}")
    return "\n".join(lines) + "\n"


def parted():
    """Return the page before the map, the map, and the page after it."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    return before, old, after


def main():
    house = read()
    if "--write" in sys.argv[1:]:
        before, _, after = parted()
        PAGE.write_text(before + BEGIN + drawn(house) + END + after)
        return
    for name, (count, lines, _) in rooms(house).items():
        print(f"{name or '(top)':12}{count:6} modules{lines:8,} lines")
    shared = repeated()
    total = sum(lines for lines, _, _ in house.values())
    print(f"{'all':12}{len(house):6} modules{total:8,} lines; {len(shared)} names twice: {', '.join(shared) or 'none'}")


if __name__ == "__main__":
    main()
