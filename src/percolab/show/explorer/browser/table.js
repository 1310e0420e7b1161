// All features in a table to sort and filter; and a feature's activations as bars, with the rows where it is strongest.

const MOST_LINES = 60;
const BARS = 24;
const COLUMNS = { feature: "feature", f1: "F1", fired: "fires on", purity: "purity", absorbed: "absorbed" };
const KINDS = { all: () => true, "that fire": (row) => row.fired > 0, dead: (row) => !row.fired, absorbed: (row) => row.absorbed > 0 };

class FeatureTable {
  constructor(app) {
    this.app = app;
    Object.assign(this, { by: "f1", falls: true, kind: "all", least: 0 });
    const { places } = app.points, most = (name, f) => Math.max(...places.map(({ features }) => features[name][f]));
    const absorbed = new Map();
    for (const { concepts } of places) {
      concepts.best_feature.forEach((f, c) => absorbed.set(f, Math.max(absorbed.get(f) ?? 0, concepts.absorption[c] || 0)));
    }
    this.rows = Array.from({ length: app.features.total }, (_, feature) => ({
      feature, f1: most("f1", feature), fired: app.features.fired[feature], purity: most("purity", feature), absorbed: absorbed.get(feature) ?? 0,
    }));
  }

  chosen() {
    const sign = this.falls ? -1 : 1;
    return this.rows.filter((row) => KINDS[this.kind](row) && row.f1 >= this.least).sort((a, b) => sign * (a[this.by] - b[this.by]) || a.feature - b.feature);
  }

  element() {
    const box = element("div", { id: "feature-table" }), kinds = element("select", { "aria-label": "which features" });
    kinds.append(...Object.keys(KINDS).map((kind) => element("option", { value: kind }, kind)));
    kinds.value = this.kind;
    const least = element("input", { type: "number", min: 0, max: 1, step: 0.05, value: this.least, "aria-label": "least F1" });
    kinds.addEventListener("change", () => this.change({ kind: kinds.value }, box));
    least.addEventListener("input", () => this.change({ least: Number(least.value) || 0 }, box));
    box.append(element("p", { class: "tools" }, element("label", {}, "features ", kinds), element("label", {}, "F1 at least ", least)), this.lines(box));
    return box;
  }

  change(values, box) {
    Object.assign(this, values);
    box.lastChild.replaceWith(this.lines(box));
  }

  lines(box) {
    const rows = this.chosen(), head = Object.entries(COLUMNS).map(([name, words]) => {
      const mark = name !== this.by ? "" : this.falls ? " ↓" : " ↑";
      const sort = () => this.change(name === this.by ? { falls: !this.falls } : { by: name, falls: name !== "feature" }, box);
      return element("th", { scope: "col" }, element("button", { type: "button", "data-sort": name, onclick: sort }, words + mark));
    });
    const body = rows.slice(0, MOST_LINES).map((row) => element("tr", { onclick: (event) => event.target.closest("button") || event.currentTarget.querySelector("button").click() },
      element("td", {}, this.app.panel.featureLink(row.feature, number(row.feature))), element("td", {}, decimal(row.f1, 2)),
      element("td", {}, row.fired ? number(row.fired) : "nowhere: dead"), element("td", {}, decimal(row.purity, 2)), element("td", {}, percent(row.absorbed))));
    const note = rows.length > MOST_LINES ? `the first ${MOST_LINES} of ${number(rows.length)}` : `${number(rows.length)} features`;
    return element("div", {}, element("table", {}, element("tr", {}, ...head), ...body), element("small", {}, note));
  }
}

// How strongly a feature fires, and the rows where it is strongest.
function activations(app, feature) {
  const values = app.features.activation(feature), fires = Array.from(app.features.firing(feature));
  if (!fires.length) return [];
  const top = Math.max(...fires.map((p) => values[p])), count = new Array(BARS).fill(0);
  for (const p of fires) count[Math.min(BARS - 1, Math.floor((BARS * values[p]) / top))]++;
  const most = Math.max(...count), bars = element("div", { class: "bars", role: "img", "aria-label": "histogram of activations" });
  bars.append(...count.map((n, i) => {
    const bar = element("i", { title: `${decimal((i * top) / BARS, 2)} to ${decimal(((i + 1) * top) / BARS, 2)}: ${number(n)} points` });
    bar.style.height = `${(100 * n) / most}%`;
    return bar;
  }));
  const { factor } = app.state, strongest = fires.sort((a, b) => values[b] - values[a] || a - b).slice(0, 8);
  const links = strongest.map((p) => app.panel.link(`${number(app.points.samples[p])} (${decimal(values[p], 2)})`, { row: app.points.samples[p], factor }));
  return [element("h3", {}, `Activations where it fires, from 0 to ${decimal(top, 2)}`), bars, element("h3", {}, "Rows where it is strongest"), element("p", { class: "links" }, ...links)];
}
