"""`hdmm-bf verify` and `hdmm-bf export`: bundles in other people's hands."""

from __future__ import annotations

import click

from hdmm_bf._display import plain
from hdmm_bf._types import JsonObject
from hdmm_bf.cli.fit import describe
from hdmm_bf.cli.show import Choice, as_json, emit, with_bounds


@click.command(short_help="Derive every claim of a bundle again.", epilog="Example: hdmm-bf verify ranges.bf")
@click.argument("bundle")
@as_json
@click.pass_context
def verify(context: click.Context, bundle: str, as_json: bool) -> int:
    """Derive sensitivity, support, error, bounds and gap again from BUNDLE's files alone.

    Exit code 1 if anything disagrees with what the bundle claims. Prints the bundle's digest, the sha256 of its
    manifest.json (which holds the sha256 of every other file): give it to `release --expect`.
    """
    from hdmm_bf import policy as policies
    from hdmm_bf.bundle import BundleError
    from hdmm_bf.fit import loading

    try:
        made, found = loading.check(bundle)
    except BundleError as refused:
        if as_json:
            emit({"verified": False, "disagreements": [str(refused)]})
        else:
            click.echo(f"hdmm-bf: {refused}", err=True)
        return 1
    if as_json:
        facts = {"hides": policies.hides(made.problem.policy), "digest": made.digest}
        emit({**with_bounds(made.summary()), **facts, "verified": not found, "disagreements": found})
    else:
        click.echo(describe(made))
        click.echo(f"Digest: {made.digest}")
        click.echo("\n".join(f"DISAGREES: {item}" for item in found) or "Verified: every claim was derived again.")
    return 1 if found else 0


class _Format(click.ParamType[str]):
    """A format that `report.export` knows; it is asked only when a format is given or listed."""

    name = "format"

    def _choice(self) -> Choice:
        from hdmm_bf.report.export import FORMATS

        return Choice(list(FORMATS))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """List the formats."""
        return self._choice().get_metavar(param, ctx)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str | None:
        """List the formats."""
        return "Choose from: " + ", ".join(self._choice().choices)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the format, or refuse it."""
        return self._choice().convert(value, param, ctx)


@click.command(
    short_help="Write the strategy for other software.",
    epilog="Example: hdmm-bf export ranges.bf --format csv --out strategy.csv",
)
@click.argument("bundle")
@click.option("--format", "kind", type=_Format(), required=True)
@click.option("--out", "-o", required=True, metavar="FILE", help="The file to write.")
@click.option("--what", type=Choice(["strategy", "reconstruction"]), default="strategy", show_default=True)
@click.option("--dense", is_flag=True, help="Write an implicit strategy as the matrix it stands for.")
@as_json
def export(bundle: str, kind: str, out: str, what: str, dense: bool, as_json: bool) -> None:
    """Write the strategy matrix, or the reconstruction W A^+, for other software.

    Formats that can (npz, json) also hold the kind, the edges (-1 is "no record") and the sensitivity; the others
    hold the matrix alone.
    """
    from hdmm_bf.fit import loading
    from hdmm_bf.report.export import check_apart, write_matrix

    check_apart([out], [bundle])
    made = loading.load(bundle)
    path = write_matrix(made, out, kind=kind, what=what, dense=dense)  # type: ignore[arg-type]
    rows, tree = made.num_rows, made.strategy.kind == "tree"
    policy = made.problem.policy
    columns = {"cell": policy.num_cells, "edge": policy.num_edges}[made.strategy.column]
    record: JsonObject = {"bundle": bundle, "file": str(path), "format": kind, "what": what}
    if as_json:
        emit(record)
    else:
        back = columns if tree else rows  # tree norms are answered from noisy counts
        shown = f"{rows} x {columns}" if what == "strategy" else f"{made.problem.workload.num_queries} x {back}"
        click.echo(f"Wrote the {what}, {shown}, to {plain(path)}")
