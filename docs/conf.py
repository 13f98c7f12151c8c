"""How Sphinx builds these pages: Markdown, docstrings, and the help texts of the commands, without network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.util.inspect import TypeAliasForwardRef

sys.path.insert(0, str(Path(__file__).parent.parent))  # the package of this checkout

import hdmm_bf  # noqa: E402
from hdmm_bf.cli import app as commands  # noqa: E402

project = "hdmm_bf"
author = "the authors of hdmm_bf"
version = release = hdmm_bf.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_static"]
html_theme = "furo"
html_title = f"hdmm_bf {version}"
html_static_path = ["_static"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_css_files = ["pages.css"]
pygments_style = "default"

myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
default_role = "literal"  # a name between single backticks, as docstrings write them
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Guarantees", "Reference"]
napoleon_use_ivar = True
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_attr_annotations = False
autodoc_type_aliases = {
    name: name
    for name in (
        *("AnyArray", "Columns", "DomainLike", "EdgeArray", "IndexArray", "MatrixLike", "Noise", "Norm", "Number"),
        *("RealMatrix", "RealVector", "SparseMatrix", "SquareMatrix"),
    )
}  # explained on the page on notation
python_maximum_signature_line_length = 110

_WIDTH = 88
_GIVEN = {"Account", "Bounds", "CellStrategy", "Certificate", "Components", "EdgeStrategy", "Entry", "Example", "Fit"}
_GIVEN |= {"Advice", "Candidate", "Comparison", "LeftOut", "PolicyWords", "TableError"}
_GIVEN |= {"Grounding", "NoiseSum", "Plan", "Policy", "Processed", "ProductStrategy", "Release", "Row", "Workload"}


class CommandHelp(Directive):
    """Write a section for every command, with the help text that it prints."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        options: Any = {"resilient_parsing": True, "terminal_width": _WIDTH}
        top = commands.make_context("hdmm-bf", [], **options)
        made = [_section("hdmm-bf", top)]
        for name in commands.list_commands(top):
            below = commands.commands[name].make_context(name, [], parent=top, **options)
            made.append(_section(f"hdmm-bf {name}", below))
        return made


def _section(title: str, context: click.Context) -> nodes.Node:
    section = nodes.section("", nodes.title("", title), ids=[nodes.make_id(title)], names=[title])
    text = context.command.get_help(context)
    section += nodes.literal_block(text, text, language="text")
    return section


def leave_out_signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, *signature: Any) -> Any:
    """Leave out how records are made that users are given and do not make."""
    return ("", None) if what == "class" and name.rpartition(".")[2] in _GIVEN else None


def setup(app: Sphinx) -> None:
    """Register the directive; resolve the names that the package loads lazily."""
    TypeAliasForwardRef.__repr__ = lambda self: self.name  # else shown as a call, inside tuples and unions
    for name in hdmm_bf.__all__:
        getattr(hdmm_bf, name)
    app.add_directive("command-help", CommandHelp)
    app.connect("autodoc-process-signature", leave_out_signature)
