"""Options that several commands have, and how words on the command line become numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import typer

from percolab.model.target import RULES, Target
from percolab.store.runners import RUNNERS

LONG_WORD = 40  #: Characters of a word that messages repeat in full.

Store = Annotated[str, typer.Argument(metavar="PATH", help="A dataset written by percolab.", show_default=False)]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing output once the new one is complete.")
]
TargetWord = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="What y is: sum, silent, sign, classes:n_groups=20, classes:max_size=100 or path_tokens:levels=4. "
        "Default: sum.",
        show_default=False,
        autocompletion=lambda incomplete: completion(RULES)(incomplete),
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")]
NoSync = Annotated[
    bool,
    typer.Option("--no-sync", help="Do not wait until the data are on disk; a power cut may then leave half of them."),
]


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


def _quoted(word: str) -> str:
    return repr(word) if len(word) <= LONG_WORD else f"{word[:20]!r}… ({len(word):,} characters)"


def number_option(name: str, text: str, parser: Callable[[object], float] = integer, default: object = None) -> Any:
    """Return an option that takes a number; its default is in the help text."""
    metavar = "NUMBER" if parser is number else "INTEGER"
    described = text if default is None else f"{text} Default: {default}."
    return typer.Option(name, parser=parser, metavar=metavar, help=described, show_default=False)


def word_option(names: str, metavar: str, text: str, values: Sequence[str] = ()) -> Any:
    """Return an option that takes a word or a file, by names with spaces between them; the shell completes `values`."""
    return typer.Option(*names.split(), metavar=metavar, help=text, autocompletion=completion(values))


def choice_option(name: str, values: Sequence[str], default: str, text: str = "") -> Any:
    """Return an option that takes one of some words, which the library checks and the shell completes."""
    described = f"{text}One of {', '.join(values)}. Default: {default}."
    return typer.Option(name, metavar="NAME", help=described, show_default=False, autocompletion=completion(values))


def completion(values: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what completes one of some words in a shell."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


Factor = Annotated[int | None, number_option("--factor", "Number of the factor, in a superposed world.")]
Threads = Annotated[int | None, number_option("--threads", "Number of threads.", default="all cores")]
Output = Annotated[str, word_option("-o --output", "PATH", "Zarr store to write, or a URL.")]
Shards = Annotated[
    int | None, number_option("--shards", "Number of shards; only the shards being made must fit in memory.")
]
Runner = Annotated[str | None, choice_option("--runner", RUNNERS, "local, in processes")]
Workers = Annotated[
    int | None, number_option("--workers", "Number of shards made at a time.", default="one for each processor")
]
Address = Annotated[
    str | None, word_option("--address", "ADDRESS", "Address of the Ray cluster. Default: one on this machine.")
]


def read_target(word: str) -> Target:
    """Read a target, such as classes:n_groups=20."""
    target = Target.from_word(word)
    if not target.is_rule:
        raise ValueError(f"target must be one of {', '.join(RULES)}, got {word!r}")
    return target


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}
