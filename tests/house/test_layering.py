"""The house rules, read from the syntax trees: imports go down, data stay above, one home a heavy dependency."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "hdmm_bf"

FLOW = [
    *("_types", "_display", "_checks", "_linalg", "matrix", "domain", "policy", "workload", "problem", "bounds"),
    *("objectives", "parallel", "strategies", "certificate", "data", "release", "bundle", "fit", "report", "cli"),
    *("__main__", "__init__"),
]
"""In the order the data flow: a module may import only what stands before it, or its own folder."""
RANK = {name: rank for rank, name in enumerate(FLOW)}
SEES_DATA = {"data", "release", "report", "cli"}
"""Where data are read, released and written; nothing else has a parameter for them."""
DERIVED_BY_OTHERS = ("bounds", "objectives", "parallel", "strategies")
"""What a certificate derives again, and so may not share code with."""
RECORDS = {"hdmm_bf.strategies.records"}
"""Forms in which strategies ship, which a certificate must know."""
HOMES = {
    "networkx": "policy",
    "optax": "objectives",
    "opendp": "release/noise.py",
    "duckdb": "data/histogram",
    "narwhals": "data",
    "matplotlib": "report/plots",
    "openpyxl": "report/export",
    "sqlglot": "workload/sql_text.py",
    "click": "cli",
}
AT_START = {"__init__", "__main__", "cli"}
"""Modules that run before the user's command is known: they import nothing heavy at the top."""
HEAVY = {"jax", "jaxlib", "optax", "opendp", "matplotlib", "networkx", "scipy", "duckdb", "narwhals"}


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def layer(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(tree, top_level_only=False):
    nodes = tree.body if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            yield node.module
            if node.module == "hdmm_bf":
                yield from (f"hdmm_bf.{alias.name}" for alias in node.names)


def own_layer(name):
    parts = name.split(".")
    return parts[1] if parts[0] == "hdmm_bf" and len(parts) > 1 and parts[1] in RANK else None


def type_checking_only(tree):
    """Names imported under `if TYPE_CHECKING:` are no dependency."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    return tree


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_strictly_down(path):
    tree = type_checking_only(ast.parse(path.read_text()))
    here = layer(path)
    assert here in RANK, f"say in FLOW where {here} stands"
    for name in imports(tree):
        there = own_layer(name)
        if there is not None and there != here:
            assert RANK[there] < RANK[here], f"{here} imports {there}, which stands above or beside it"


def certificates():
    return sorted((PACKAGE / "certificate").rglob("*.py"))


def shared_with_search(tree):
    """Imports of a certificate that it should have code of its own for."""
    return {name for name in imports(tree) if own_layer(name) in DERIVED_BY_OTHERS} - RECORDS


@pytest.mark.parametrize("path", certificates(), ids=lambda p: p.name)
def test_certificates_share_no_code_with_the_search(path):
    assert not shared_with_search(type_checking_only(ast.parse(path.read_text())))


@pytest.mark.parametrize(
    "planted",
    [
        "from hdmm_bf.bounds.dense import svd_bound",
        "from hdmm_bf.bounds.products import product_bound",
        "from hdmm_bf.strategies.gaussian import dense",
        "from hdmm_bf.strategies import search",
        "import hdmm_bf.strategies.search",
        "from hdmm_bf import bounds",
        "def f():\n    from hdmm_bf.objectives import minimise",
    ],
)
def test_a_certificate_that_imports_the_search_is_caught(planted):
    own = (PACKAGE / "certificate" / "dense.py").read_text()
    assert not shared_with_search(ast.parse(own))
    assert shared_with_search(ast.parse(f"{own}\n\n{planted}\n"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_data_and_release_and_what_passes_them_on_see_data(path):
    if layer(path) in SEES_DATA:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            given = node.args
            names = {a.arg for a in [*given.posonlyargs, *given.args, *given.kwonlyargs]}
            assert not names & {"x", "counts", "data"}, f"{path}:{node.lineno}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_each_heavy_dependency_has_one_home(path):
    tree = type_checking_only(ast.parse(path.read_text()))
    place = str(path.relative_to(PACKAGE))
    for name in imports(tree):
        home = HOMES.get(name.split(".")[0])
        if home is not None:
            assert place.startswith(home), f"{place} imports {name}, whose home is {home}"
    if layer(path) in AT_START:
        heavy = {name.split(".")[0] for name in imports(tree, top_level_only=True)} & HEAVY
        assert not heavy


def test_the_rules_can_fail():
    bad = ast.parse("from hdmm_bf.cli import main\nimport networkx\n")
    assert [own_layer(name) for name in imports(bad)] == ["cli", None]
    assert RANK["cli"] > RANK["policy"]
