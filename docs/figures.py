"""The pictures of the tutorials: `python -m docs.figures` runs their snippets and keeps the figures that they save."""

import os
import shutil
import tempfile
from pathlib import Path

from tests.support.snippets import blocks, run_python

DOCS = Path(__file__).parent
PICTURES = DOCS / "_static"


def draw(page: Path) -> list[Path]:
    """Run a page's Python snippets in an empty folder and copy the PNG files they leave to `_static`."""
    names: dict[str, object] = {"__name__": page.stem}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for block in blocks(page.read_text(), "pycon"):
                wrong = run_python(block.code, names, page.name, block.line - 1)
                assert not wrong, wrong
            made = sorted(Path(folder).glob("*.png"))
            return [Path(shutil.copy(picture, PICTURES)) for picture in made]
        finally:
            os.chdir(before)


if __name__ == "__main__":
    for tutorial in sorted((DOCS / "tutorials").glob("*.md")):
        for picture in draw(tutorial.resolve()):
            print(f"{picture.relative_to(DOCS.parent)}: {picture.stat().st_size / 1000:.0f} kB")
