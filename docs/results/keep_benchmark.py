"""Keep the numbers of a task of the benchmark that the pages here show: tables, endpoints and curves, no concepts.

    python docs/results/keep_benchmark.py v1/documents/results.json documents

writes benchmark/documents.json, of some 200 to 700 KB, from the results of `percolab benchmark -o v1`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WHOLE = ("command", "scale", "draws", "table", "endpoints", "seconds", "provenance")
CURVE = ("role", "method", "setting", "at", "measure", "value", "low", "high", "by_draw")
LEVEL = ("role", "method", "measure", "value", "low", "high", "by_draw")
#: Beginnings of measures that no page shows draw by draw.
BRIEF = (
    "absorption_carried", "absorption_eligible", "absorption_linear", "absorption_null", "dead", "f1_union",
    "features", "l0_zero", "latent", "mcc", "planted", "probe", "seconds", "shrinkage", "size", "splitting",
    "uniqueness",
)  # fmt: skip
BESIDE = ("endpoint", "method", "measure", "value", "low", "high", "by_draw")


def main() -> None:
    """Write the file."""
    source, name = sys.argv[1:]
    results = json.loads(Path(source).read_text(encoding="utf-8"))
    kept = {key: results[key] for key in WHOLE} | {"missing": len(results["missing"])}
    rows = results["estimates"]
    tested = {(row["endpoint"], row["method"], row["value"]) for row in results["endpoints"]}
    kept["beside"] = [
        {key: row[key] for key in BESIDE}
        for row in rows
        if row["part"] == "endpoint" and (row["endpoint"], row["method"], row["value"]) not in tested
    ]
    kept["levels"] = [named(row, LEVEL) for row in rows if row["part"] == "level"]
    kept["curves"] = [named(row, CURVE) for row in rows if row["part"] == "curve"]
    file = HERE / "benchmark" / f"{name}.json"
    file.write_text(json.dumps(rounded(kept), ensure_ascii=False) + "\n", encoding="utf-8")


def named(row: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """Return some entries of an estimate; of measures that no page shows draw by draw, without the draws."""
    brief = row["measure"].startswith(BRIEF)
    return {key: row[key] for key in keys if key != "by_draw" or not brief}


def rounded(value: Any) -> Any:
    """Return plain values with numbers of six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
