// Points taken with a lasso, and files of what is seen: a PNG of space, a CSV of the points that are taken or picked.

class Lasso {
  constructor(app) {
    this.app = app;
    this.points = null;
    this.button = document.getElementById("lasso");
    this.cover = document.getElementById("cover");
    this.line = this.cover.querySelector("polyline");
    this.button.addEventListener("click", () => this.arm(this.cover.hasAttribute("hidden")));
    this.cover.addEventListener("pointerdown", (event) => {
      this.path = [];
      this.cover.setPointerCapture(event.pointerId);
      this.add(event);
    });
    this.cover.addEventListener("pointermove", (event) => this.path && this.add(event));
    this.cover.addEventListener("pointerup", () => this.take());
    document.getElementById("png").addEventListener("click", () => this.png());
    document.getElementById("csv").addEventListener("click", () => save(new Blob([this.csv()], { type: "text/csv" }), "points.csv"));
  }

  arm(armed) {
    this.cover.toggleAttribute("hidden", !armed);
    this.button.setAttribute("aria-pressed", armed);
    this.path = null;
    this.line.setAttribute("points", "");
  }

  add(event) {
    const box = this.cover.getBoundingClientRect();
    this.path.push({ data: dataAt(this.app.space.figure, event), at: [event.clientX - box.left, event.clientY - box.top] });
    this.line.setAttribute("points", this.path.map(({ at }) => at.join(",")).join(" "));
  }

  take() {
    const { space } = this.app, path = (this.path ?? []).map(({ data }) => data);
    this.arm(false);
    if (path.length < 3) return;
    this.app.go({ latent: null, row: null, feature: null, colour: "latent", tree: "latent" }, false);
    this.points = Array.from(space.index).filter((_, i) => inPolygon(space.x[i], space.y[i], path));
    space.highlight(this.points);
    this.app.panel.show();
  }

  drop() {
    this.points = null;
  }

  async png() {
    const layer = Bokeh.index.get_by_id(this.app.space.figure.id).export("png");
    save(await new Promise((done) => layer.canvas.toBlob(done)), "points.png");
  }

  // The points taken, or of the latent that is picked, or all: row, smallest concept, columns, activation.
  csv() {
    const { app } = this, { points, state } = app, tree = app.trees[state.factor], i = app.chosen();
    const some = this.points ?? (i < 0 ? Array.from(app.space.index) : Array.from(points.within(tree.factor, tree.start[i], tree.end(i))));
    const columns = [...points.columns.values()].map(({ name, values }) => [name, values]);
    if (app.features && state.feature !== null) columns.push([`feature ${state.feature}`, app.features.activation(state.feature)]);
    const concept = (p) => tree.latent[tree.holding(points.places[state.factor].rows[p])] ?? "";
    const lines = some.map((p) => [points.samples[p], concept(p), ...columns.map(([, values]) => values[p])].join(","));
    return [["row", "latent", ...columns.map(([name]) => name)].join(","), ...lines, ""].join("\n");
  }
}

function inPolygon(x, y, path) {
  let inside = false;
  path.forEach(([x1, y1], i) => {
    const [x0, y0] = path[(i || path.length) - 1];
    if (y0 > y !== y1 > y && x < ((x1 - x0) * (y - y0)) / (y1 - y0) + x0) inside = !inside;
  });
  return inside;
}

function save(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
