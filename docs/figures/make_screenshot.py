"""Take the picture of the explorer that docs/explorer.md shows; needs Chromium and the group ``test``."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import percolab as pl
from percolab.features import score
from percolab.features.methods import KMeans

HERE = Path(__file__).parent
VIEW = "#feature={feature}&factor=0&latent={latent}&colour=activation&tree=f1"


def main() -> None:
    """Explore 20,000 points and 200 clusters of k-means, with the match of one of them picked."""
    dataset = pl.generate(pl.Recipe(n_points=20_000, dim=50, mode="one_cluster", seeds=7))
    codes = KMeans(200, batch_size=4096).fit(dataset.X).encode(dataset.X)
    found = score(dataset, codes, ratio=1)
    features = found.features[found.features["fired"] > 80]
    best = features.loc[(features["f1"] - 0.75).abs().idxmin()]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder) / "explorer.html"
        pl.show.explore(dataset, codes=codes, scores=found, name="small.zarr", features_name="k-means").save(file)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 760})
        page.goto(file.as_uri() + VIEW.format(feature=int(best["feature"]), latent=int(best["latent"])))
        page.wait_for_function("document.body.dataset.ready === 'true'")
        page.wait_for_timeout(3000)
        page.screenshot(path=HERE / "explorer.png")
        browser.close()


if __name__ == "__main__":
    main()
