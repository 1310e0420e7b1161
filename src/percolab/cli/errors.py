"""Errors of commands: one line in terms of the command's own options, and an exit code."""

from __future__ import annotations

import errno
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand

from percolab.ground import machine
from percolab.store.runners import WorkerError
from percolab.store.schema import StoreError

BAD_INPUT, FAILURE, INTERRUPTED = 2, 1, machine.INTERRUPTED

_READ = {"dataset": "path", "location": "path"}
_RUN = {**_READ, "checkpoint": "run"}
#: By command: names in messages of the library, and the option of the command that each stands for.
LIBRARY_NAMES: Mapping[str, Mapping[str, str]] = {
    "generate": {
        "location": "output",
        "seeds": "seed",
        "seeds.graph": "graph_seed",
        "seeds.embed": "embed_seed",
        "seeds.value": "value_seed",
        "recipe.engine": "engine",
    },
    "documents": {
        "location": "output",
        "n_points": "tokens",
        "lo": "first",
        "hi": "count",
        **dict.fromkeys(("seeds", "seeds.graph", "seeds.embed", "seeds.value"), "seed"),
    },
    # These commands read one location and write another, and a message does not say which it is about.
    "edit": {"dataset": "path"},
    "take": {"dataset": "path", "sizes": "size"},
    "superpose": {"dataset": "factors"},
    "info": {**_READ, "output": "html"},
    "verify": {**_READ, "output": "report"},
    "draw": {**_READ, "latents": "colour"},
    "explore": {**_RUN, "codes": "features", "n_points": "points"},
    "export": _READ,
    "train": {**_READ, "run_dir": "output", "checkpoint": "output"},
    "baselines": _READ,
    "probe": {**_RUN, "min_size": "min_latent_size"},
    "score": {**_RUN, "names": "layer", "layers": "layer"},
    "represent": {"experiment": "name"},
}

#: What is raised for words on the command line that are not understood: click's `UsageError`. Some versions of typer
#: import click, and others carry a copy of it.
WrongUse: Any = typer.BadParameter.__base__

#: Messages of native libraries when memory is short: they have no exception type for it.
NO_ROOM = (
    "can't allocate memory",
    "cannot allocate memory",
    "out of memory",
    "can't start new thread",
    "failed to map segment",
)


class UnfinishedError(Exception):
    """The user, or a time limit, interrupted a command that can be resumed."""


class CommandError(Exception):
    """A command cannot continue: the message, which may be empty, and the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Command(TyperCommand):
    """A command whose error messages name its options."""

    failure = FAILURE  #: exit code if the command cannot continue

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            described = describe(error)
            if described is None:
                raise
            message, code = described
            code = self.failure if code == FAILURE else code
            names = option_names(self.params, LIBRARY_NAMES.get(self.name or "", {}))
            raise CommandError(in_options(message, names), code) from error


class Judge(Command):
    """A command that exits with 1 for a bad verdict, and therefore with 2 for an error."""

    failure = BAD_INPUT


Run = Callable[..., None]
#: The commands of each module, with the kind of each and the end of its help page.
COMMANDS: dict[str, list[tuple[Run, type[Command], str]]] = {}


def command(function: Run | None = None, *, kind: type[Command] = Command) -> Any:
    """Make a function a command. The end of its help page is the section Examples of its docstring."""
    if function is None:
        return partial(command, kind=kind)
    function.__doc__, _, lines = (inspect.getdoc(function) or "").partition("\n\nExamples\n--------\n")
    COMMANDS.setdefault(function.__module__, []).append((function, kind, examples(*lines.splitlines())))
    return function


def examples(*lines: str) -> str:
    """Return the end of a help page; lines that begin with # say what the next one does."""
    shown = (f"[dim]{line}[/dim]" if line.startswith("#") else line for line in lines)
    return _AsWritten("[bold]Examples[/bold]\n\n" + "\n".join(shown))


class _AsWritten(str):
    """The end of a help page, of which some versions of typer join the lines."""

    def split(self, *_: Any, **__: Any) -> list[str]:
        """Return the text as a single paragraph."""
        return [self]

    def replace(self, *_: Any, **__: Any) -> str:
        """Return the text with its line breaks."""
        return self


def describe(error: Exception) -> tuple[str, int] | None:
    """Return the message for an exception, and the exit code; None for a fault of percolab itself."""
    text = str(error)
    match error:
        case UnfinishedError():
            return text, INTERRUPTED
        case StoreError() | WorkerError():
            return text, FAILURE
        case ImportError() | RuntimeError() if any(phrase in text.lower() for phrase in NO_ROOM):
            return f"out of memory: {text.splitlines()[0]}", BAD_INPUT
        case ImportError():
            return text, FAILURE
        case MemoryError():
            return text or "out of memory", BAD_INPUT
        case ValueError() | OverflowError():
            return text, BAD_INPUT
        case OSError():
            return _os_error(error)
    return None


def _os_error(error: OSError) -> tuple[str, int]:
    if error.errno is None:  # raised by our own checks, with a sentence
        return str(error), BAD_INPUT
    if error.errno == errno.EPIPE:  # the reader of the output is gone: no message can be shown
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "", FAILURE
    place = f": {error.filename}" if error.filename else ""
    return f"{error.strerror}{place}", FAILURE


def wrong_use(error: Any) -> str:
    """Return the message for words that are not understood, in the form of all messages, and where to look them up."""
    page = f"(see {getattr(error.ctx, 'command_path', None) or 'percolab'} --help)"
    if isinstance(error, typer.BadParameter) and error.param is not None and error.param.opts:
        name = _spelling(error.param)
        return f"{name} {error.message}" if error.message else f"{name} must be given {page}"
    return f"{error.format_message()} {page}"


# ---------------------------------------------------------------------- from the library's names to options


def option_names(params: Iterable[Any], library: Mapping[str, str]) -> dict[str, str]:
    """Return the spelling of a command's options by the names that messages of the library use for them."""
    names = {}
    for param in params:
        spelling = _spelling(param)
        names[param.name] = names[spelling.lstrip("-").replace("-", "_").lower()] = spelling
    return names | {name: names[option] for name, option in library.items()}


def _spelling(param: Any) -> str:
    """Return an option with its dashes, or an argument as the help page writes it."""
    name = str(next((word for word in param.opts if word.startswith("--")), param.opts[0]))
    return name if name.startswith("-") else re.sub(r"[\[\].]", "", str(param.metavar or name)).upper()


def in_options(message: str, names: Mapping[str, str]) -> str:
    """Return a message of the library with options in place of its names for them.

    A name is replaced where it is the subject (``dim must be …``), after words that relate it to another (``unless
    overwrite is given``, ``with shards``) and with its value (``mode='custom'``); never in the value that was given.
    """
    head, got, value = message.partition(", got ")
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    subject = re.match(rf"(?:{known})(?: (?:and|or) (?:{known}))*(?= must\b)", head)
    if subject:
        head = re.sub(known, lambda match: names[match[0]], subject[0]) + head[subject.end() :]
    head = re.sub(rf"(?<![-.\w])({known})=(?:'([^']*)'|(\w+))", lambda m: f"{names[m[1]]} {m[2] or m[3]}", head)
    head = re.sub(rf"\b(unless|with|without|and|or) ({known})(?![-.\w'])", lambda m: f"{m[1]} {names[m[2]]}", head)
    return head if value == "None" else head + got + value  # an option that was left out is not repeated
