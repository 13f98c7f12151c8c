"""The command `hdmm-bf`: options, files and words; no mathematics.

Every command takes `--json` (one object on standard output, nothing else there). Exit codes: 0 done,
2 a user's mistake in one sentence, 1 a failed check. Heavy modules are imported inside the commands.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from hdmm_bf import __version__

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="hdmm-bf")
@click.pass_context
def app(context: click.Context) -> None:
    """Publish many counting queries under a Blowfish privacy policy with provably small error.

    Policies and workloads are spec strings (line:64, all-range:64) or paths to files.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@app.command(epilog="Example: hdmm-bf explain threshold:64:4")
@click.argument("policy")
@_JSON
def explain(policy: str, as_json: bool) -> None:
    """Say in words what POLICY hides and what it makes public.

    POLICY is a spec such as line:64, threshold:32x32:1, bounded:16, sensitive:2x5x7:1,2 or a graph file
    (.csv, .graphml, .json).
    """
    from hdmm_bf import policy as policies

    graph = policies.parse(policy)
    facts: dict[str, Any] = {
        "policy": graph.spec,
        "num_cells": graph.num_cells,
        "num_edges": graph.num_edges,
        "num_components": graph.components.count,
        "is_tree": graph.is_tree,
        "hides": policies.hides(graph),
        "fades": policies.fades(graph),
        "discloses": policies.discloses(graph),
        "notes": list(graph.notes),
        "examples": [
            {"before": e.before, "after": e.after, "neighbours": e.neighbours, "sentence": e.sentence}
            for e in policies.examples(graph)
        ],
    }
    click.echo(json.dumps(facts) if as_json else _explanation(facts))


def _explanation(facts: dict[str, Any]) -> str:
    kind = "a tree" if facts["is_tree"] else f"{_count(facts['num_components'], 'component')}"
    lines = [
        f"{facts['policy']}: {_count(facts['num_cells'], 'cell')}, {_count(facts['num_edges'], 'edge')}, {kind}",
        "",
        f"Hidden   {facts['hides']}",
        f"         {facts['fades']}",
    ]
    public = facts["discloses"] or ["nothing; even the number of records is hidden."]
    lines += [f"{'Public   ' if i == 0 else '         '}{item}" for i, item in enumerate(public)]
    lines += [f"Note     {note}" for note in facts["notes"]]
    for example in facts["examples"]:
        lines += ["", "Example  " + example["sentence"]]
        width = max(len(name) for name in example["before"])
        for name, count in example["before"].items():
            records = f"{_count(count, 'record')} -> {example['after'][name]}"
            lines.append(f"         {name:<{width}}  {records}")
    return "\n".join(lines)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def main() -> None:
    """Run the command line and turn a user's mistake into one sentence and exit code 2."""
    from hdmm_bf._checks import InputError

    try:
        app(prog_name="hdmm-bf", standalone_mode=False)
    except (InputError, click.ClickException) as mistake:
        sentence = mistake.format_message() if isinstance(mistake, click.ClickException) else str(mistake)
        click.echo(f"hdmm-bf: {sentence}", err=True)
        sys.exit(2)
    except click.exceptions.Abort:
        click.echo("hdmm-bf: interrupted.", err=True)
        sys.exit(130)
