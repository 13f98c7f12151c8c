"""The statement: what a release promises a person and what it does not, in plain words, for whoever answers for it.

A template with fields in the form `$name`; those that the software cannot know stay as gaps in square brackets until
somebody fills them in. Every number in it is the plan's or the certificate's.
"""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from string import Template

import numpy as np

from hdmm_bf import __version__
from hdmm_bf import policy as policies
from hdmm_bf._checks import fail, nearest
from hdmm_bf._display import plain, word
from hdmm_bf.fit import Fit
from hdmm_bf.fit.worst import deviations
from hdmm_bf.release.calibration import Accounting
from hdmm_bf.release.plan import Plan, plan
from hdmm_bf.release.privacy import NAMES, guess_probability
from hdmm_bf.workload.layout import Block

_WIDTH = 100
_MOST_TABLES = 40
_MOST_VALUES = 6

TEMPLATE = """\
# Statement on the privacy of a publication

- Published by: $publisher
- Prepared with hdmm_bf $version from the bundle $bundle

## What is published

$published

The numbers are counts of records. One record is $unit. $attributes

## What is promised to each $whose record

$hidden

$promise $meaning $guess

$fades The promise holds whatever else anybody knows or will learn, and whatever they compute from the published
numbers.

## What is not promised

$public

Nor does the promise cover these:

$limits

## Why this privacy loss

$reason

## How exact the published numbers are

$errors

Every published number comes with its standard deviation. The errors do not depend on the data.

## How anybody can check this

The policy, the queries and the strategy are fixed by a bundle of files with the digest

$digest

$commands

`verify` derives the sensitivity, and with it the noise that the promise needs, again from the files of the bundle,
and prints the digest. `release --expect` refuses a bundle with another digest. The file with the published numbers
carries the policy, epsilon and delta that they were made with.
"""

_LIMITS = (
    "Facts about groups. The publication is meant to teach facts about groups, and these may tell something about a "
    "person whether or not their record is in the data.",
    "Several records of one person, or of a household. The promise is about one record; for k records the loss is k "
    "times as large, and a delta grows, too.",
    "Several publications. The promise is about this one. Others from the same records add to the loss; a ledger "
    "(`hdmm-bf ledger`) keeps the sum.",
    "What can be learned about a person from elsewhere, and files beside the publication: the records themselves, and "
    "anything computed from them without noise.",
)
"""What no policy promises."""

FIELDS = tuple(Template(TEMPLATE).get_identifiers())
"""Names that a template may use."""


def statement(
    fit: Fit,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    accounting: Accounting = "analytic",
    publisher: str | None = None,
    unit: str | None = None,
    reason: str | None = None,
    bundle: str = "strategy.bf",
    template: str | None = None,
) -> str:
    """Return a statement for the regulator, and for the people in the data, about a release of a fit.

    Args:
        fit: from `fit` or `load`; a loaded one has a digest.
        epsilon, delta, rho, accounting: the promise, as for `plan`.
        publisher: who answers for it.
        unit: what one record is, such as "one person".
        reason: why this epsilon, in a sentence or more.
        bundle: the name of the bundle in the commands.
        template: another text with fields such as `$hidden`; `statement.FIELDS` lists them, and `$$` is a dollar.

    Guarantees:
        What is not known stays a gap in square brackets: nothing is made up for it.
    """
    settled = plan(fit, epsilon=epsilon, delta=delta, rho=rho, accounting=accounting)
    fields = _fields(fit, settled, {"publisher": publisher, "unit": unit, "reason": reason}, bundle)
    return _laid_out(_filled(TEMPLATE, fields)) if template is None else _filled(template, fields)


def _filled(template: str, fields: Mapping[str, str]) -> str:
    """Put the fields in their places."""
    made = Template(template)
    if not made.is_valid():
        problem = "has a dollar that starts no field"
        raise fail("statement", "template", problem, "Write $$ for a dollar, and fields like $hidden.")
    for name in made.get_identifiers():
        if name not in fields:
            raise fail("statement", f"${name} in the template", "is no field", nearest(name, fields))
    return made.substitute(fields)


def _laid_out(text: str) -> str:
    """Break paragraphs and items of lists at the width of a page; headings and what stands in are left alone."""
    items: list[str] = []
    for line in text.splitlines():
        fresh = not line or line.startswith(("- ", "#", "    ")) or not items or not items[-1]
        if fresh or items[-1].startswith(("#", "    ")):
            items.append(line)
        else:
            items[-1] += f" {line}"
    return "\n".join(line for item in items for line in _broken(item)).strip() + "\n"


def _broken(item: str) -> list[str]:
    if len(item) <= _WIDTH or item.startswith((" ", "#")):
        return [item]
    further = "  " if item.startswith("- ") else ""
    return textwrap.wrap(item, _WIDTH, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)


def _fields(fit: Fit, settled: Plan, given: Mapping[str, str | None], bundle: str) -> dict[str, str]:
    graph, unit = fit.problem.policy, given["unit"]
    disclosed = fit.discloses
    known = "These become known exactly, without noise:\n" + _listed(disclosed)
    return {
        "publisher": _given(given["publisher"], "who publishes, and who answers questions"),
        "unit": _given(unit, "what one record is: a person, a household, a visit"),
        "whose": "person's" if unit is None else "such",
        "reason": _given(given["reason"], "why this epsilon, and who decided it; see the page for regulators"),
        "version": __version__,
        "bundle": plain(bundle),
        "published": _published(fit),
        "attributes": _attributes(fit),
        "hidden": policies.hides(graph),
        "promise": f"The promise is {settled.promise}.",
        "meaning": _meaning(settled),
        "guess": _guess(settled),
        "fades": policies.fades(graph),
        "public": known if disclosed else "Nothing becomes known exactly, not even the number of records.",
        "limits": _listed([*_presence(fit), *_LIMITS]),
        "errors": _errors(fit, settled),
        "digest": f"    {fit.digest or '[save the bundle, load it again: its digest belongs here]'}",
        "commands": _commands(fit, settled, bundle),
    }


def _given(words: str | None, gap: str) -> str:
    return f"[to be filled in: {gap}]" if words is None or not words.strip() else plain(words.strip())


def _listed(items: Sequence[str]) -> str:
    return "\n".join(f"- {plain(item)}" for item in items)


def _blocks(fit: Fit) -> tuple[Block, ...]:
    layout = fit.problem.workload.layout
    return () if layout is None else layout.blocks


def _published(fit: Fit) -> str:
    """List the tables, or say how many counts there are."""
    workload, blocks = fit.problem.workload, _blocks(fit)
    total = f"{workload.num_queries} counts over {workload.num_cells} cells"
    if not 0 < len(blocks) <= _MOST_TABLES:
        return f"{total}: {plain(workload.title)}."
    return f"{total}:\n" + _listed([f"{plain(block.name)} ({block.num_queries})" for block in blocks])


def _attributes(fit: Fit) -> str:
    """Say what is known of a record: its attributes and their values."""
    domain = fit.problem.policy.domain
    if not domain.has_own_names:
        return ""
    said = []
    for i, name in enumerate(domain.names):
        size = domain.sizes[i]
        if domain.labels[i] is not None and size <= _MOST_VALUES:
            values = ", ".join(word(domain.value_name(i, v)) for v in range(size))
        else:
            values = f"{size} values, {word(domain.value_name(i, 0))} to {word(domain.value_name(i, size - 1))}"
        unit = domain.units[i]
        said.append(f"{word(name)} ({values}{'' if unit is None else f', in {word(unit)}'})")
    return f"Of each record the data hold {', '.join(said)}."


def _meaning(settled: Plan) -> str:
    """Say what epsilon and delta mean for what is published."""
    if settled.sampler is None:
        return "All published numbers are public under the policy: nothing is added to them, and no loss is spent."
    if settled.epsilon is None:
        return "Rho bounds how much, on average, a publication can speak for one of two such records over the other."
    factor = f"{_rounded_up(math.exp(settled.epsilon), 3)}" if settled.epsilon <= 50 else f"e^{settled.epsilon:g}"
    added = "" if settled.delta is None else f", plus {settled.delta:g}"
    return (
        "For any two cases that are hidden from each other, whatever could be published is about as likely in one as "
        f"in the other: its probability changes by a factor of at most {factor}{added}."
    )


def _guess(settled: Plan) -> str:
    """Say how often the best guess is right."""
    if settled.sampler is None:
        return ""
    right = guess_probability(epsilon=settled.epsilon, delta=settled.delta, rho=settled.rho, mu=settled.mu)
    share = min(math.ceil(1000 * right) / 10, 100.0)
    return (
        "Somebody who knows all other records, and to whom both cases are equally likely beforehand, guesses right "
        f"at most {share:.1f} times out of 100; a coin is right 50 times."
    )


def _presence(fit: Fit) -> list[str]:
    """Say whether it is hidden that a record is there, and whether some values are hidden from none."""
    graph = fit.problem.policy
    if not graph.has_bottom:
        return ["That a record is in the data. The policy hides what it says of the record, and not that it is there."]
    return ["Cases that no path of the policy joins."] if graph.components.public.size else []


def _errors(fit: Fit, settled: Plan) -> str:
    """Say the error of all counts, and of every table."""
    if settled.sampler is None:
        return "They are exact."
    worst = "" if settled.worst_stddev is None else f"; the largest standard deviation is {settled.worst_stddev:.4g}"
    blocks = _blocks(fit)
    lines = [f"The noise is {NAMES[fit.noise]}. A count has a root mean squared error of {settled.rmse:.4g}{worst}."]
    if 1 < len(blocks) <= _MOST_TABLES and settled.variances is not None:
        parts = np.split(deviations(settled), np.cumsum([block.num_queries for block in blocks])[:-1])
        told = [
            (block.name, float(np.sqrt(np.mean(part**2))), part.max())
            for block, part in zip(blocks, parts, strict=True)
        ]
        lines.append(_listed([f"{plain(name)}: {rmse:.4g}, the largest {most:.4g}" for name, rmse, most in told]))
    return "\n".join(lines)


def _commands(fit: Fit, settled: Plan, bundle: str) -> str:
    name = shlex.quote(bundle)
    promise = {"epsilon": settled.epsilon, "delta": settled.delta}
    if settled.epsilon is None:
        promise = {"rho": settled.rho}
    options = " ".join(f"--{key} {float(value)!r}" for key, value in promise.items() if value is not None)
    expect = "" if fit.digest is None else f" --expect {fit.digest}"
    return "\n".join([f"    hdmm-bf verify {name}", f"    hdmm-bf release {name} {options}{expect} --dry-run"])


def _rounded_up(value: float, digits: int) -> str:
    place = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return f"{math.ceil(value * place) / place:g}"
