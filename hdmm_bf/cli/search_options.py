"""Options that the commands which search have in common."""

from __future__ import annotations

import click

from hdmm_bf.cli.requests import Command
from hdmm_bf.cli.show import Choice

GAP = click.option("--gap", default=1e-3, show_default=True, help="Proven distance to stop at.")
SECONDS = click.option(
    "--max-seconds",
    type=float,
    metavar="T",
    help="Be done by then [default: it depends].",
)
BOUND_SECONDS = click.option("--max-seconds", type=float, metavar="T", help="Stop after this time [default: none].")
NOISE = click.option(
    "--noise",
    type=Choice(["gaussian", "laplace", "norm", "auto"]),
    default="gaussian",
    metavar="N",
    help="gaussian [default], laplace, norm (pure epsilon), auto.",
)
MATRIX_NOISE = click.option(
    "--noise",
    type=Choice(["gaussian", "laplace"]),
    default="gaussian",
    show_default=True,
    help="Gaussian: (epsilon, delta), optimal with proof. Laplace: pure epsilon.",
)
EPSILON = click.option("--epsilon", type=float, metavar="E", help="Tell the error at this budget; auto: serve it.")
DELTA = click.option("--delta", type=float, metavar="D", help="With it, for Gaussian noise.")
OBJECTIVE = click.option(
    "--objective", type=Choice(["total", "largest", "targets"]), metavar="O", help="total [default], largest, targets."
)
TARGETS = click.option("--targets", metavar="FILE", help="Standard deviations, one a query; or one number for all.")
SEED = click.option("--seed", default=0, show_default=True, help="For random numbers.")
STEPS = click.option("--max-steps", type=int, metavar="K", help="Stop after K steps, the same on every run.")
WORKERS = click.option("--workers", type=int, metavar="N", help="Laplace: processes [default: one per core].")


class Family(click.Option):
    """An option whose help lists the families, which are loaded only when it is read."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the option and the names of all families."""
        from hdmm_bf.strategies import registry

        return "--family F", f"One alone: {', '.join(registry.names())}."


def effort(command: Command) -> Command:
    """Add --quick and --thorough, for how long a Laplace search goes on without a gain."""
    quick = click.option("--quick", "effort", flag_value="quick", help="Pure epsilon: one look at every family.")
    thorough = click.option("--thorough", "effort", flag_value="thorough", help="Pure epsilon: go on far longer.")
    normal = click.option("--normal", "effort", flag_value="normal", default=True, hidden=True)
    return quick(thorough(normal(command)))
