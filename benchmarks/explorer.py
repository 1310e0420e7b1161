"""Size and speed of the explorer's page: 100,000 points, without and with features, in headless Chromium.

    python benchmarks/explorer.py [--points 100000] [--features 4096]
    python benchmarks/explorer.py --serve [--gigabytes 4] [--limit 1]

A page of plain files has no peer to be compared with, so this prints what it is asked to keep to: at most 15 MB, usable
after 3 s. Of the time until then it also prints what the page's thread computed, which other work on the machine does
not change. Without a graphics processor the time of a frame is that of the canvas that stands in.

With --serve it makes a store of so many GB, serves it from a process that may have --limit GB (RLIMIT_DATA: all memory
that is not a file's), looks at three latents in their own components, and prints the most that the process had. That
the limit holds is seen by a process that reads X whole under it, and must fail.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import percolab as pl
from percolab.features import score

NOISE_PER_ROW = 16
CONCEPTS = 3000
FRAMES = """async (moving) => {
  const { space } = percolabExplorer.app, [x0, x1, y0, y1] = space.range(), times = [];
  for (let i = 1; i <= 15; i++) {
    const start = performance.now(), by = (i * (x1 - x0)) / 60;
    if (moving) space.moving();
    space.look([x0 + by, x1 + by, y0, y1]);
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    times.push(performance.now() - start);
  }
  return times.slice(3).sort((a, b) => a - b)[6];
}"""
LOOK = """(which) => {
  const { app } = percolabExplorer, tree = app.trees[0], i = tree.groups(6, -1)[which];
  app.go({ latent: tree.latent[i], view: `0:${tree.latent[i]}` });
  return [tree.latent[i], tree.size[i]];
}"""


SERVED_DIM = 500
LIMITED = """
import resource, sys
limit = int(float(sys.argv.pop(1)) * 1e9)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
"""
SERVE = LIMITED + "from percolab.cli.main import main; main()"
WHOLE = LIMITED + "import numpy, percolab; numpy.asarray(percolab.load(sys.argv[1]).X)"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--points", type=int, default=100_000)
    options.add_argument("--features", type=int, default=4096)
    options.add_argument("--serve", action="store_true")
    options.add_argument("--gigabytes", type=float, default=4)
    options.add_argument("--limit", type=float, default=1)
    chosen = options.parse_args()
    if chosen.serve:
        with tempfile.TemporaryDirectory() as folder:
            serve(Path(folder) / "large.zarr", chosen.gigabytes, chosen.limit)
        return
    dataset = pl.generate(pl.Recipe(n_points=chosen.points, dim=100, mode="one_cluster", seeds=7))
    codes = noisy_concepts(dataset.forest, chosen.features)
    found = score(dataset, codes, ratio=1, draws=1)
    noisy = dataset.y + 0.4 * np.random.default_rng(1).standard_normal(len(dataset))
    pages = {"alone": {}, "with features": {"prediction": noisy, "codes": codes, "scores": found}}
    with tempfile.TemporaryDirectory() as folder:
        for name, more in pages.items():
            start = time.perf_counter()
            pl.show.explore(dataset, **more).save(file := Path(folder) / f"{name}.html")
            built = time.perf_counter() - start
            print(
                f"{name}: {file.stat().st_size / 1e6:.1f} MB (at most 15), built in {built:.1f} s; {in_browser(file)}"
            )
    print(f"features: {chosen.features:,}, firing {codes.nnz / 1e6:.1f} million times")


def noisy_concepts(forest: pl.Forest, n_features: int) -> Any:
    """Return codes like those of a dictionary: most features are concepts, with misses, and all have noise."""
    rng = np.random.default_rng(0)
    concepts = forest.concepts(20, 2 / 3)[: min(CONCEPTS, n_features)]
    members = forest.membership(concepts[forest.latent_size[concepts] < forest.n_points]).tocoo()
    kept = rng.random(members.nnz) < 0.9
    noise = forest.n_points * NOISE_PER_ROW
    rows = np.concatenate([members.row[kept], rng.integers(0, forest.n_points, noise)])
    columns = np.concatenate([members.col[kept], rng.integers(0, n_features, noise)])
    values = rng.gamma(3, 0.3, rows.size).astype(np.float32)
    return scipy.sparse.coo_array((values, (rows, columns)), shape=(forest.n_points, n_features)).tocsr()


def serve(path: Path, gigabytes: float, limit: float) -> None:
    """Print how long looking at a large store takes and how much memory its server had."""
    recipe = pl.Recipe(int(gigabytes * 1e9 / 4 / SERVED_DIM), SERVED_DIM, "one_cluster", seeds=7, dtype="float32")
    pl.generate_store(recipe, path, shards=max(1, int(8 * gigabytes)))
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    print(f"a store of {recipe.n_points:,} points in {SERVED_DIM} dimensions, {size / 1e9:.1f} GB; limit {limit:g} GB")
    whole = subprocess.run([sys.executable, "-c", WHOLE, str(limit), str(path)], capture_output=True, text=True)
    print(f"X read whole under the limit: {(whole.stderr.strip().splitlines() or ['it fits'])[-1]}")
    command = [sys.executable, "-c", SERVE, str(limit), "explore", str(path), "--serve"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, opened() as page:
        assert server.stdout is not None
        address = server.stdout.readline().split(" ")[0]
        print(f"served after {time.perf_counter() - start:.1f} s")
        page.goto(address)
        page.wait_for_function("document.body.dataset.ready === 'true'")
        for i in range(3):
            start = time.perf_counter()
            latent, points = page.evaluate(LOOK, i)
            page.wait_for_function(f"percolabExplorer.app.points.total === {points}", timeout=300_000)
            print(f"latent {latent:,} of {points:,} points: seen after {time.perf_counter() - start:.1f} s")
        status = Path(f"/proc/{server.pid}/status").read_text()
        server.terminate()
    peak = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024
    print(f"the server had at most {peak / 1e9:.2f} GB of memory, files of libraries included")


@contextmanager
def opened() -> Any:
    """Have an empty page in Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": 1280, "height": 800})
        browser.close()


def in_browser(file: Path) -> str:
    """Return how soon a page is usable, and what a frame takes while it moves and with all points."""
    if shutil.which("chromium") is None:
        return "not opened: there is no Chromium"
    with opened() as page:
        metrics = page.context.new_cdp_session(page)
        metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
        start = time.perf_counter()
        page.goto(file.as_uri())
        page.wait_for_function("document.body.dataset.ready === 'true'")
        ready = time.perf_counter() - start
        told = metrics.send("Performance.getMetrics")["metrics"]
        busy = next(one["value"] for one in told if one["name"] == "TaskDuration")
        page.wait_for_timeout(2000)
        moving = page.evaluate(FRAMES, True)
        page.wait_for_timeout(1000)
        resting = page.evaluate(FRAMES, False)
    usable = f"usable after {ready:.1f} s (aim 3), {busy:.1f} s of it computing"
    return f"{usable}; a frame takes {moving:.0f} ms moving, {resting:.0f} ms with all points"


if __name__ == "__main__":
    main()
