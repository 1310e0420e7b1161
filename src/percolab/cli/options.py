"""Options that several commands have, and how words on the command line become numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

import typer

from percolab.model.target import RULES, Target
from percolab.store.runners import RUNNERS

LONG_WORD = 40  #: Characters of a word that messages repeat in full.


def integer(text: object) -> int:
    """Read an integer that fits in 64 bits with a sign: 1000000, 1_000_000 or 1e6."""
    return _whole(text, 63)


def seed(text: object) -> int:
    """Read an integer that fits in 64 bits without a sign."""
    return _whole(text, 64)


def _whole(text: object, bits: int) -> int:
    word = str(text)
    try:
        value = Decimal(word)  # exact, and quick for any number of digits
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or value != value.to_integral_value():
        raise typer.BadParameter(f"must be an integer, got {_quoted(word)}")
    if value.copy_abs() >= 2**bits:
        raise typer.BadParameter(f"must be below 2**{bits}, got {_quoted(word)}")
    return int(value)


def number(text: object) -> float:
    """Read a number."""
    word = str(text)
    try:
        return float(word)
    except ValueError:
        raise typer.BadParameter(f"must be a number, got {_quoted(word)}") from None


def listed(name: str, text: str | None, *, whole: bool = False) -> Any:
    """Read numbers separated by commas."""
    if text is None:
        return None
    try:
        return [int(part) if whole else number(part) for part in text.split(",")]
    except (ValueError, typer.BadParameter):
        raise ValueError(f"{name} must be numbers with commas between them, got {text!r}") from None


def _quoted(word: str) -> str:
    return repr(word) if len(word) <= LONG_WORD else f"{word[:20]!r}… ({len(word):,} characters)"


def number_option(text: str, parser: Callable[[object], float] = integer) -> Any:
    """Return an option that takes a number."""
    metavar = "NUMBER" if parser is number else "INTEGER"
    return typer.Option(parser=parser, metavar=metavar, help=text)


def word_option(metavar: str, text: str, values: Sequence[str] = (), *, names: str = "") -> Any:
    """Return an option that takes a word or a file; the shell completes `values`.

    It is called as its parameter is, or has these names, with spaces between them.
    """
    return typer.Option(*names.split(), metavar=metavar, help=text, autocompletion=completion(values))


def choice_option(values: Sequence[str], text: str = "", *, default: str = "") -> Any:
    """Return an option that takes one of some words, which the library checks and the shell completes.

    The help page says the default of the parameter; where that is None, it says what the library takes, `default`.
    """
    described = f"{text}One of {', '.join(values)}.{default and f' Default: {default}.'}"
    return word_option("NAME", described, values)


def output_option(metavar: str, text: str) -> Any:
    """Return the option that says where a command writes to."""
    return word_option(metavar, text, names="-o --output")


def argument(metavar: str, text: str, values: Sequence[str] = ()) -> Any:
    """Return an argument that takes a word or a file; the shell completes `values`."""
    return typer.Argument(metavar=metavar, help=text, show_default=False, autocompletion=completion(values))


def completion(values: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what completes one of some words in a shell."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


#: Options and arguments that several commands have.
Store = Annotated[str, argument("PATH", "A dataset written by percolab.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing output when the new one is ready.")]
OverwriteRun = Annotated[bool, typer.Option("--overwrite", help="Start again if the directory holds another run.")]
TargetWord = Annotated[
    str | None,
    word_option(
        "RULE",
        "What y is: sum, silent, sign, classes:n_groups=20, classes:max_size=100 or path_tokens:levels=4. "
        "Default: sum.",
        RULES,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")]
NoSync = Annotated[
    bool,
    typer.Option("--no-sync", help="Do not wait until the data are on disk; a power cut may then leave half of them."),
]
Factor = Annotated[int | None, number_option("Number of the factor, in a superposed world.")]
Threads = Annotated[int | None, number_option("Number of threads. Default: all cores.")]
Output = Annotated[str, output_option("PATH", "Zarr store to write, or a URL.")]
Shards = Annotated[int | None, number_option("Number of shards; only the shards being made must fit in memory.")]
Runner = Annotated[str | None, choice_option(RUNNERS, default="local, in processes")]
Workers = Annotated[int | None, number_option("Number of shards made at a time. Default: one for each processor.")]
Address = Annotated[str | None, word_option("HOST:PORT", "Address of the Ray cluster. Default: one on this machine.")]
Device = Annotated[str, word_option("NAME", "auto, cpu, cuda or cuda:N.", ("auto", "cpu", "cuda"))]
Ray = Annotated[str | None, word_option("ADDRESS", "Compute on a Ray cluster: HOST:PORT, ray://HOST:PORT or auto.")]
Processes = Annotated[int, number_option("Cells computed at a time, in processes of this machine.")]
Draws = Annotated[int, number_option("Draws of the data; from 3 on, intervals are over draws.")]
Network = Annotated[str | None, word_option("MODULE:FUNCTION", "Your networks: make(data, seed) returns one.")]
Trained = Annotated[str | None, word_option("MODULE:FUNCTION", "Your network: make(data, seed) returns it, trained.")]
Layers = Annotated[str | None, word_option("A,B", "Modules of --network to read.")]
Activations = Annotated[Path | None, word_option("FOLDER", "Activations in place of networks, with manifest.json.")]


def read_target(word: str) -> Target:
    """Read a target, such as classes:n_groups=20."""
    target = Target.from_word(word)
    if not target.is_rule:
        raise ValueError(f"target must be one of {', '.join(RULES)}, got {word!r}")
    return target


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}
