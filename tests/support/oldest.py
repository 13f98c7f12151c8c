"""Print the oldest version that pyproject.toml allows of every dependency, as constraints for pip.

`make matrix-oldest` installs them and runs the suite: that is the oldest environment that is promised to work. What no
line of pyproject.toml names stays free.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
GROUPS = ("test",)
"""Groups that the suite needs; linters and the builder of the pages are not promised to be old."""
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?\s*>=\s*(?P<oldest>[0-9][0-9.]*)")


def requirements(project: dict) -> Iterator[str]:
    """Every requirement of the package, its extras and the groups of the suite."""
    yield from project["project"]["dependencies"]
    for extra in project["project"]["optional-dependencies"].values():
        yield from extra
    for group in GROUPS:
        yield from project["dependency-groups"][group]


def oldest(requirement: str) -> str:
    """`numpy>=2.0` becomes `numpy==2.0`; a requirement without a lower limit is a mistake."""
    found = REQUIREMENT.match(requirement)
    if found is None:
        sys.exit(f"{requirement!r} in pyproject.toml has no lower limit; write name>=version.")
    return f"{found['name']}=={found['oldest']}"


if __name__ == "__main__":
    project = tomllib.loads(PYPROJECT.read_text())
    print("\n".join(sorted({oldest(text) for text in requirements(project)})))  # noqa: T201
