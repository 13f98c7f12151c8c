"""Code blocks of Markdown pages: found, run, and compared with what the page says they print.

`pycon` blocks are doctests; in `console` blocks a line `$ command` is run and what follows must be printed (`...`
stands for anything). Blocks of a page run in its order, in one folder and with one set of Python names.
"""

import doctest
import re
import shlex
from typing import NamedTuple

from tests.support.command_line import call

WIDEST = 100
"""Characters of a line of what commands print on a page."""

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A code block, with the line of the page on which its code starts."""

    kind: str
    code: str
    line: int


def blocks(text, *kinds):
    """Return the code blocks of a page in order, all of them or those of some kinds."""
    found = [Block(m[1], m[2], text.count("\n", 0, m.start(2)) + 1) for m in _BLOCK.finditer(text)]
    return [block for block in found if not kinds or block.kind in kinds]


def commands(code):
    """Return the commands of a console block, each with the output that follows it."""
    parts = re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]
    return [tuple(part.partition("\n")[::2]) for part in parts]


def same(expected, printed):
    """Whether what was printed is what was expected, up to white space and `...`."""
    return doctest.OutputChecker().check_output(expected, printed, FLAGS)


def run_command(command, folder, runner=call):
    """Run one of our own commands in a folder, in this process or by another runner; return all it printed."""
    program, *arguments = shlex.split(command)
    assert program == "hdmm-bf", "only our own command is run from pages"
    printed = runner(*arguments, cwd=folder, columns=WIDEST)
    return printed.stdout + printed.stderr


def run_python(code, names, page, line=0):
    """Run a doctest, which may use and add to `names`, in the current folder; return what went wrong."""
    test = doctest.DocTestParser().get_doctest(code, names, page, page, line)
    test.globs = names  # not a copy: the next block goes on with them
    failures = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=failures.append, clear_globs=False)
    return "".join(failures)


def run_page(text, page, folder):
    """Run a page in the current folder, which is `folder`; return what went wrong."""
    names, wrong = {"__name__": page}, []
    for block in blocks(text, "pycon", "console"):
        if block.kind == "pycon":
            wrong.append(run_python(block.code, names, page, block.line - 1))
            continue
        for command, output in commands(block.code):
            printed = run_command(command, folder)
            if not same(output, printed):
                wrong.append(f"{page}: {command}\nExpected:\n{output}\nGot:\n{printed}\n")
    return "".join(wrong)
