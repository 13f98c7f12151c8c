"""The command `hdmm-bf`: options, files and words; no mathematics.

Every command takes `--json` (one object on standard output, nothing else there). Exit codes: 0 done,
2 a user's mistake in one sentence, 1 a failed check, 130 interrupted. Heavy modules are imported inside the commands.
"""

from __future__ import annotations

import os
import sys

import click

from hdmm_bf import __version__
from hdmm_bf._display import plain
from hdmm_bf.cli.advise import advise
from hdmm_bf.cli.compare import compare
from hdmm_bf.cli.doctor import doctor
from hdmm_bf.cli.explain import explain
from hdmm_bf.cli.fit import bound, certify, fit
from hdmm_bf.cli.init import init
from hdmm_bf.cli.ledger import ledger
from hdmm_bf.cli.plan import plan
from hdmm_bf.cli.release import release
from hdmm_bf.cli.report import report
from hdmm_bf.cli.reproduce import reproduce
from hdmm_bf.cli.share import export, verify
from hdmm_bf.cli.show import INTERRUPTED
from hdmm_bf.cli.statement import statement


class _InOrder(click.Group):
    """Lists the commands in the order people use them, on one screen."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the words without empty lines between them."""
        with formatter.indentation():
            formatter.write("\n")
            for line in filter(None, map(str.strip, (self.help or "").splitlines())):
                formatter.write_text(line)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Name the options of the program itself on one line, then list the commands."""
        with formatter.indentation():
            formatter.write_text("Options: -h, --help, also after a command; --version.")
        self.format_commands(ctx, formatter)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order they were added."""
        return list(self.commands)


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="hdmm-bf")
@click.pass_context
def app(context: click.Context) -> None:
    """Publish counting queries under a Blowfish policy with provably small error.

    Policies and workloads are specs (line:64, all-range:64) or paths to files.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (
    explain,
    init,
    advise,
    bound,
    fit,
    certify,
    compare,
    verify,
    export,
    plan,
    release,
    report,
    statement,
    ledger,
    reproduce,
    doctor,
):
    app.add_command(command)


CACHE = "HDMM_BF_CACHE"
"""Environment variable: the folder where compiled programs are kept from one command to the next, or "off"."""


OTHER_WORDS = {
    **dict.fromkeys(("--time-limit", "--timeout", "--max-time", "--seconds"), "--max-seconds"),
    **dict.fromkeys(("--iterations", "--max-iterations"), "--max-steps"),
    **dict.fromkeys(("--output", "--save"), "--out"),
    **dict.fromkeys(("--matrix", "--queries"), "--workload"),
    **dict.fromkeys(("--graph", "--edges"), "--policy"),
    **dict.fromkeys(("--counts", "--histogram"), "--data"),
    **dict.fromkeys(("--jobs", "--processes", "--threads"), "--workers"),
}
"""Options that other programs have, and what they are called here."""


def _sentence(mistake: Exception) -> str:
    """Say a mistake; an option that is called otherwise here, or that was left out, is answered with its name."""
    context = mistake.ctx if isinstance(mistake, click.UsageError) else None
    own = [name for parameter in context.command.params for name in parameter.opts] if context else []
    if isinstance(mistake, click.NoSuchOption):
        meant = OTHER_WORDS.get(mistake.option_name)
        if meant in own:
            return f"No such option: {mistake.option_name} Did you mean {meant}?"
    said = mistake.format_message() if isinstance(mistake, click.ClickException) else str(mistake)
    if said.startswith("Got unexpected extra argument") and {"--workload", "--policy"} <= set(own):
        said += ". Give a problem file alone, or --workload all-range:64 --policy line:64."
    return said


def cache_folder() -> str | None:
    """Return the folder of compiled programs: the one that the user named, the usual one, or None for "off"."""
    named = os.environ.get(CACHE)
    if named:
        return None if named.lower() in ("off", "0", "no") else named
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "hdmm_bf") if os.path.isabs(base) else None


def keep_compiled_programs() -> None:
    """Tell JAX, before it is loaded, to keep what it compiles; a folder that cannot be written is left alone."""
    folder = cache_folder()
    if folder is None:
        return
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", folder)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # ours are small, and many


def main() -> None:
    """Run the command line and exit with its code; after Ctrl-C at any time, with 130."""
    keep_compiled_programs()
    try:
        code = _run()
    except (click.exceptions.Abort, Exception, KeyboardInterrupt) as end:
        if not _interrupted(end):
            raise
        click.echo("hdmm-bf: interrupted before the result was complete.", err=True)
        code = INTERRUPTED
    if code == INTERRUPTED:
        _leave(INTERRUPTED)
    sys.exit(code)


def _interrupted(end: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an exception: modules in C that are being loaded answer it with an ImportError."""
    while end is not None and not isinstance(end, (click.exceptions.Abort, KeyboardInterrupt)):
        end = end.__cause__ or end.__context__
    return end is not None


def _run() -> int:
    """Turn a user's mistake into one sentence and exit code 2."""
    from hdmm_bf._checks import InputError

    try:
        code = app(prog_name="hdmm-bf", standalone_mode=False)
    except (InputError, click.ClickException) as mistake:
        click.echo("hdmm-bf: " + plain(" ".join(_sentence(mistake).split("\n"))), err=True)
        return 2
    return code if isinstance(code, int) else 0


def _leave(code: int) -> None:
    """Exit at once: after Ctrl-C inside an import Python would end by the signal, and compiled code may crash."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
