"""The command line: assembles the commands, runs one, and turns what goes wrong into a line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from _thread import interrupt_main
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Annotated

import typer

from percolab.cli import draw, edit, errors, experiments, explore, export, features, generate, inspect, networks
from percolab.cli.errors import BAD_INPUT, COMMANDS, INTERRUPTED, CommandError, WrongUse, examples
from percolab.ground import machine
from percolab.ground.text import one_line
from percolab.ground.version import __version__

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=examples(
        "percolab generate paper-one-cluster -o one.zarr",
        "percolab generate --n-points 20000 --dim 50 --seed 7 -o small.zarr",
        "percolab documents --tokens 2048 --count 1e5 -o docs.zarr",
        "percolab info small.zarr",
        "percolab verify small.zarr",
        "percolab draw small.zarr -o small.png",
        "percolab explore small.zarr -o explorer.html",
        "percolab export small.zarr --format npz -o small",
        "percolab generate --help",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"percolab {__version__}")
        raise typer.Exit


@app.callback()
def _percolab(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Make and inspect percolation datasets: points on fractal clusters, with the hierarchy of latents behind them."""


for _room in (generate, edit, inspect, draw, explore, export, networks, experiments, features):
    for _function, _kind, _epilog in COMMANDS[_room.__name__]:
        app.command(cls=_kind, epilog=_epilog)(_function)


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.stderr is None:  # closed by whoever started us
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        sys.exit(_say("standard output must be open, got a closed one", BAD_INPUT))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name that cannot be shown must not fail the command
    if signal.getsignal(signal.SIGINT) in (machine.leave, signal.default_int_handler):  # else they are not for us
        interrupts = _Interrupts()
        signal.signal(signal.SIGINT, interrupts.press)
        sys.unraisablehook = interrupts.press_again
    code = run(sys.argv[1:])
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to say
    sys.exit(code)


class _Interrupts:
    """Interrupts from the keyboard: the first one ends the command, and no other disturbs its end."""

    pressed = False
    in_hook = False  #: whether `press_again` runs, where nothing can be raised either

    def press(self, *_: object) -> None:
        """Raise, the first time."""
        if self.in_hook:
            self._press_soon()
        elif not self.pressed:
            self.pressed = True
            warnings.simplefilter("ignore")  # of what libraries could not finish
            raise KeyboardInterrupt

    def press_again(self, lost: sys.UnraisableHookArgs) -> None:
        """Raise again what came where nothing could be raised, in a destructor or a call from C; show other faults."""
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(lost)
            return
        self.pressed, self.in_hook = False, True
        self._press_soon()
        self.in_hook = False  # the last step: Python looks for signals after calls, and none follows

    def _press_soon(self) -> None:
        threading.Timer(0.001, interrupt_main).start()


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code: 0, 2 for bad input, 1 for a failure, 130 if interrupted."""
    try:
        _check_text(arguments)
        code = _call(arguments)
        if code == INTERRUPTED:  # some versions of typer return this, others raise Abort
            raise KeyboardInterrupt
        return code
    except CommandError as error:
        return _say(str(error), error.code)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted, nothing was written", INTERRUPTED)
    except Exception as error:
        if isinstance(error, WrongUse):
            return _say(errors.wrong_use(error), BAD_INPUT) if arguments else _help()
        described = errors.describe(error)
        if described is None:
            raise
        return _say(*described)


def _call(arguments: Sequence[str]) -> int:
    code = int(app(args=list(arguments), prog_name="percolab", standalone_mode=False) or 0)
    sys.stdout.flush()
    return code


def _help() -> int:
    """Show the commands to somebody who named none."""
    with redirect_stdout(sys.stderr):
        _call(["--help"])
    return BAD_INPUT


def _check_text(arguments: Sequence[str]) -> None:
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise CommandError(f"arguments must be text, got {os.fsencode(word)!r}", BAD_INPUT) from None


def _say(message: str, code: int) -> int:
    """Write one line, in which what a file holds cannot move a terminal's cursor; return the code."""
    if message:
        print(f"error: {one_line(message)}", file=sys.stderr)
    return code
