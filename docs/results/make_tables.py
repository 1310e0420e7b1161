"""Put the numbers of results.json into the tables of README.md, between the comments that name them.

    python docs/results/make_tables.py

`percolab reproduce` makes results.json; this program computes nothing.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EXPERIMENTS = ("one-cluster", "multi-cluster")
Results = Mapping[str, Mapping[str, Any]]


def main() -> None:
    """Write README.md again."""
    results = {name: json.loads((HERE / name / "results.json").read_text(encoding="utf-8")) for name in EXPERIMENTS}
    page = HERE / "README.md"
    text = page.read_text(encoding="utf-8")
    for name, make in TABLES.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        text, n = re.subn(
            pattern, lambda found, make=make: found[1] + make(results) + "\n" + found[2], text, flags=re.S
        )
        if n != 1:
            raise SystemExit(f"README.md must have one table {name}, got {n}")
    page.write_text(text, encoding="utf-8")


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def interval(found: Mapping[str, Any], digits: int = 3) -> str:
    """Return a value with its interval."""
    value, low, high = (found.get(key) for key in ("value", "low", "high"))
    if value is None:
        return ""
    if low is None:
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def performance(results: Results) -> str:
    """Return Table 1."""
    rows = []
    for measure, digits in (("r2", 3), ("mse", 4)):
        for lines in zip(*(results[name]["table_1"] for name in EXPERIMENTS), strict=True):
            cells = ["R²" if measure == "r2" else "MSE", lines[0]["model"]]
            for line in lines:
                found = {"value": line[measure], "low": line[f"{measure}_low"], "high": line[f"{measure}_high"]}
                cells += [line[f"paper_{measure}"] or "", interval(found, digits)]
            rows.append(cells)
    return table(["", "", *(f"{name}{of}" for name in EXPERIMENTS for of in (", paper", ""))], rows)


def findings(results: Results) -> str:
    """Return the findings and their verdicts."""
    rows = []
    for name in EXPERIMENTS:
        for finding in results[name]["findings"]["z"]:
            untrained = f"{finding['untrained_verdict']}: {finding['untrained_numbers']}"
            rows.append([name, finding["claim"], f"**{finding['verdict']}**", finding["numbers"], untrained])
    return table(["data", "finding", "verdict", "trained", "untrained"], rows)


def controls(results: Results) -> str:
    """Return the errors of all representations, relative to the training mean."""
    rows = []
    for name in EXPERIMENTS:
        for row in results[name]["controls"]:
            cells = [interval(row[target]) for target in ("z", "z_redrawn", "sum", "sum_redrawn")]
            ratio = row.get("over_untrained")
            own = [name, row["kind"], f"`{row['representation']}`", str(row["n"])]
            rows.append([*own, *cells, interval(ratio["z"], 2) if ratio else ""])
    head = ["data", "kind", "representation", "draws", "z", "fresh z", "sum", "fresh sum", "z, trained / untrained"]
    return table(head, rows)


def held_out(results: Results) -> str:
    """Return what is read off latents never seen."""
    rows = [
        [
            name,
            row["kind"],
            f"`{row['representation']}`",
            f"{row['error']:.3f}",
            interval(row["fresh"]),
            f"{row['p']:.2f}",
        ]
        for name in EXPERIMENTS
        for row in results[name]["held_out"]
    ]
    return table(["data", "kind", "representation", "z", "fresh z", "p"], rows)


def power(results: Results) -> str:
    """Return how often planted signals are found."""
    rows = [
        [name, f"{row['strength']:g}", f"{row['found']:.0%}", f"{row['error']:.3f}", str(row["draws"])]
        for name in EXPERIMENTS
        for row in results[name]["power"]["strengths"]
    ]
    return table(["data", "strength", "found", "error", "draws"], rows)


def seconds(results: Results) -> str:
    """Return the time of each stage."""
    stages = list(dict.fromkeys(stage for name in EXPERIMENTS for stage in results[name]["seconds"]))
    rows = []
    for stage in stages:
        taken = [results[name]["seconds"].get(stage) for name in EXPERIMENTS]
        rows.append([stage, *("" if one is None else f"{one:.1f}" for one in taken)])
    return table(["stage", *EXPERIMENTS], rows)


TABLES: dict[str, Callable[[Results], str]] = {
    "performance": performance,
    "findings": findings,
    "controls": controls,
    "held out": held_out,
    "power": power,
    "seconds": seconds,
}

if __name__ == "__main__":
    main()
