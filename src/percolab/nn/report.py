"""The report of a reproduction: one HTML file that needs nothing else, and the same numbers as plain values."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Any

from percolab.nn.progress import clock

PAPER_TABLE = {
    "one-cluster": {
        "ridge": {"r2": "0.51", "mse": "0.20"},
        "nearest_neighbour": {"r2": "0.94", "mse": "0.024"},
        "mlp": {"r2": "0.94", "mse": "0.026"},
    },
    "multi-cluster": {
        "ridge": {"r2": "0.39", "mse": "0.59"},
        "nearest_neighbour": {"r2": "0.86", "mse": "0.13"},
        "mlp": {"r2": "0.88", "mse": "0.12"},
    },
}
"""Table 1 as printed in the paper."""
MODEL_WORDS = {"mean": "mean", "ridge": "ridge", "nearest_neighbour": "1NN", "mlp": "MLP"}
FIGURE_WORDS = {
    "fig4": "Figure 4. Probes of single latent values against FOM. Markers are medians over latents in logarithmic "
    "bins, bars the quartiles; filled circles: residual stream, open squares: hidden layers. Below: each latent's "
    "error over its error on the raw input.",
    "fig5": "Figure 5. The same probes by depth: error over all held-out points of a depth.",
    "fig7": "Figure 7. As Figure 4, for the sum of the values from the top of the cluster down to the latent.",
    "memorising": "Not in the paper. Error of the probes of z relative to predicting the training mean, median over "
    "latents. In the paper's protocol every latent has points on both sides of the split. Where fresh values do as "
    "well as true ones and unseen latents do no better than the mean, a probe has learned where latents are, and not "
    "to read their values.",
    "training": "Training and validation loss.",
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .93rem; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; } figure { margin: 1.2rem 0; } figcaption { color: #555; font-size: .9rem; }
.holds { color: #00694d; font-weight: 600; } .part { color: #8a5a00; font-weight: 600; }
.fails { color: #a33b00; font-weight: 600; } code { background: #f3f3f3; padding: .1rem .3rem; } .quiet { color: #666; }
"""
_VERDICT_CLASS = {"holds": "holds", "holds in part": "part", "does not hold": "fails"}


def table_one(experiment: str, at_paper_scale: bool, scores: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Return Table 1, a row a model: ours, and the paper's printed digits where there are any."""
    rows = []
    for model, words in MODEL_WORDS.items():
        printed = PAPER_TABLE[experiment].get(model, {})
        rows.append({
            "model": words, "r2": scores[model]["r2"], "mse": scores[model]["mse"],
            "paper_r2": printed.get("r2"), "paper_mse": printed.get("mse"), "comparable": at_paper_scale,
        })  # fmt: skip
    return rows


def html_report(results: dict[str, Any], figures: dict[str, Path]) -> str:
    """Return the report as one HTML page with its figures inside."""
    experiment, scale = results["experiment"], results["scale"]
    data = results["dataset"]
    contents = (
        f"{data['n_points']:,} points in {data['dim']} dimensions, clusters: {data['n_clusters']:,}, latents: "
        f"{data['n_latents']:,}. Made on {results['training']['device']} in {clock(sum(results['seconds'].values()))} "
        "(minutes:seconds)."
    )
    parts = [f"<h1>percolab reproduce {experiment}, {scale} scale</h1>", f"<p>{_text(contents)}</p>"]
    if scale != "paper":
        parts.append(
            "<p>This is a reduced run: a smaller dataset and a smaller, shorter-trained network. It shows that every "
            "stage works. Its numbers are not those of the paper.</p>"
        )
    parts += ["<h2>Table 1: performance</h2>", _table_one(results["table_1"], scale == "paper")]
    parts += ["<h2>The paper's findings about probes</h2>", _findings(results["findings"]["random"]["z"])]
    parts += [_figure(figures[name], FIGURE_WORDS[name]) for name in ("fig4", "fig5", "fig7")]
    parts += ["<h2>Reading a value or remembering a place?</h2>", _controls(results["controls"])]
    parts += [_figure(figures[name], FIGURE_WORDS[name]) for name in ("memorising", "training") if name in figures]
    parts += [f"<p class=quiet>Left out: {_text('; '.join(results['skipped']))}.</p>" if results["skipped"] else ""]
    parts += ["<h2>How it was made</h2>", _making(results)]
    title = f"percolab: {experiment}, {scale} scale"
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def _text(value: Any) -> str:
    return html.escape(str(value))


def _table_one(rows: list[dict[str, Any]], comparable: bool) -> str:
    number = " class=number"
    paper = "paper" if comparable else "paper (full scale)"
    lines = [
        f"<table><tr><th>model<th{number}>R²<th{number}>{paper}<th{number}>MSE<th{number}>{paper}</tr>",
    ]
    for row in rows:
        lines.append(
            f"<tr><td>{row['model']}<td{number}>{row['r2']:.3f}<td{number}>{row['paper_r2'] or '-'}"
            f"<td{number}>{row['mse']:.4f}<td{number}>{row['paper_mse'] or '-'}</tr>"
        )
    lines.append("</table>")
    note = "Ridge, the mean and the MLP are scored on the 10% test rows; 1NN predicts every point by its nearest other."
    return "\n".join([*lines, f"<p class=quiet>{note}</p>"])


def _findings(findings: list[dict[str, Any]]) -> str:
    if not findings:
        return "<p>Too few latents to check them.</p>"
    lines = ["<table><tr><th>finding<th>here<th>statistic</tr>"]
    for finding in findings:
        verdict = finding["verdict"]
        lines.append(
            f"<tr><td>{_text(finding['claim'])}<td class={_VERDICT_CLASS[verdict]}>{verdict}"
            f"<td>{_text(finding['numbers'])}<br><span class=quiet>Holds if {_text(finding['rule'])}.</span></tr>"
        )
    return "\n".join([*lines, "</table>"])


def _controls(controls: list[dict[str, Any]]) -> str:
    heads = "<th>held out<th>target<th>representation<th class=number>R²<th class=number>MSE / MSE of the mean"
    lines = [f"<table><tr>{heads}</tr>"]
    lines += [
        f"<tr><td>{_text(row['protocol_words'])}<td>{_text(row['target_words'])}<td>{_text(row['representation_words'])}"
        f"<td class=number>{_number(row['median_r2'])}<td class=number>{_number(row['median_relative_mse'])}</tr>"
        for row in controls
    ]
    return "\n".join([*lines, "</table>", "<p class=quiet>Medians over depths.</p>"])


def _number(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.3f}"


def _figure(path: Path, caption: str) -> str:
    image = base64.b64encode(path.read_bytes()).decode()
    return (
        f'<figure><img alt="{_text(caption)}" src="data:image/png;base64,{image}">'
        f"<figcaption>{_text(caption)}</figcaption></figure>"
    )


def _making(results: dict[str, Any]) -> str:
    stages = "".join(
        f"<tr><td>{_text(name)}<td class=number>{value:.1f} s</tr>" for name, value in results["seconds"].items()
    )
    settings = {
        "recipe": results["recipe"],
        "training": results["training"]["config"],
        "arithmetic": results["training"]["matmul"],
        "probes": results["probe_config"],
        "versions": results["versions"],
    }
    rows = "".join(f"<tr><td>{name}<td><code>{_text(value)}</code></tr>" for name, value in settings.items())
    return (
        f"<p><code>{_text(results['command'])}</code></p>\n<table>{stages}</table>\n<table>{rows}</table>\n"
        "<p>All numbers are in <code>results.json</code>, the errors of every latent in "
        "<code>probes/per_latent.csv</code>.</p>"
    )
