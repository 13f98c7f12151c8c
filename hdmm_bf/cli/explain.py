"""`hdmm-bf explain`: a policy in words."""

from __future__ import annotations

import click

from hdmm_bf._display import plain
from hdmm_bf._types import JsonObject
from hdmm_bf.cli.show import as_json, count, emit


@click.command(epilog="Example: hdmm-bf explain threshold:64:4")
@click.argument("policy")
@click.option("--per-person", type=click.IntRange(min=1), metavar="K", help="Say what people of at most K records get.")
@as_json
def explain(policy: str, per_person: int | None, as_json: bool) -> None:
    """Say in words what POLICY hides and what it makes public.

    POLICY is a spec such as line:64, threshold:32x32:1, bounded:16, sensitive:2x5x7:1,2, a graph file
    (.csv, .graphml, .json, .geojson), or a problem file (.toml), whose labels and units it then uses.
    """
    from hdmm_bf import policy as policies
    from hdmm_bf.fit import problem_file

    graph = problem_file.read_policy(policy) if policy.lower().endswith(".toml") else policies.parse(policy)
    record: JsonObject = {
        "policy": graph.title,
        "num_cells": graph.num_cells,
        "num_edges": graph.num_edges,
        "num_components": graph.components.count,
        "is_tree": graph.is_tree,
        "hides": policies.hides(graph),
        "fades": policies.fades(graph),
        "people": policies.people(graph, per_person),
        "discloses": policies.discloses(graph),
        "notes": list(graph.notes),
        "examples": [
            {"before": e.before, "after": e.after, "neighbours": e.neighbours, "sentence": e.sentence}
            for e in policies.examples(graph)
        ],
    }
    if as_json:
        emit(record)
    else:
        click.echo(_explanation(record))


def _explanation(record: JsonObject) -> str:
    kind = "a tree" if record["is_tree"] else count(record["num_components"], "component")
    lines = [
        f"{record['policy']}: {count(record['num_cells'], 'cell')}, {count(record['num_edges'], 'edge')}, {kind}",
        "",
        f"Hidden   {plain(record['hides'])}",
        f"         {plain(record['fades'])}",
    ]
    lines += [f"People   {plain(record['people'])}"]
    public = record["discloses"] or ["nothing; even the number of records is hidden."]
    lines += [f"{'Public   ' if i == 0 else '         '}{plain(item)}" for i, item in enumerate(public)]
    lines += [f"Note     {plain(note)}" for note in record["notes"]]
    for example in record["examples"]:
        lines += ["", "Example  " + plain(example["sentence"])]
        width = max(len(plain(name)) for name in example["before"])
        for name, amount in example["before"].items():
            lines.append(f"         {plain(name):<{width}}  {count(amount, 'record')} -> {example['after'][name]}")
    return "\n".join(lines)
