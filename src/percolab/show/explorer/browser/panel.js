// What is known of what is picked. All of it goes in as text, so nothing in it can run.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

const THOUSANDS = new Intl.NumberFormat("en");
const number = (value) => THOUSANDS.format(value);
const decimal = (value, digits = 3) => (Number.isFinite(value) ? value.toFixed(digits).replace("-", "−") : "–");
const percent = (value) => (Number.isFinite(value) ? `${(100 * value).toFixed(1)}%` : "–");

function facts(rows) {
  const lines = rows.filter(([, value]) => value !== null);
  return element("table", {}, ...lines.map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value))));
}

class Panel {
  constructor(app) {
    this.app = app;
    this.box = document.getElementById("details");
  }

  show() {
    const { state } = this.app, parts = [];
    if (state.feature !== null && this.app.features) parts.push(...this.feature(state.feature));
    if (state.latent !== null) parts.push(...this.latent());
    if (!parts.length) parts.push(...(this.app.lasso.points ? this.taken(this.app.lasso.points) : this.all()));
    this.box.replaceChildren(...parts);
  }

  link(words, change, more = {}) {
    return element("button", { type: "button", ...more, onclick: () => this.app.go(change) }, words);
  }

  latentLink(tree, i) {
    return this.link(`${number(tree.latent[i])} (${number(tree.size[i])})`, { factor: tree.factor, latent: tree.latent[i], row: null });
  }

  featureLink(feature, words) {
    return this.link(words, this.app.featureChange(feature));
  }

  all() {
    const { data, points, trees, features } = this.app;
    const drawn = points.length < data.total ? `${number(points.length)} of ${number(data.total)}, a uniform random sample (seed ${data.seed})` : "all";
    const parts = [
      element("h2", {}, data.name),
      element("p", {}, data.lead),
      facts([
        ["points drawn", drawn],
        ...trees.map((tree) => [trees.length > 1 ? `concepts of factor ${tree.factor}` : "concepts", `${number(tree.concept.reduce((a, b) => a + b, 0))} of at least ${tree.minSize} points, near copies included`]),
        ...(features ? [["features", `${features.name}: ${number(features.total)}, ${number(features.shown.length)} on this page`]] : []),
      ]),
    ];
    for (const tree of trees) {
      const large = tree.groups(GROUPS.length, -1);
      if (!large.length) continue;
      parts.push(element("h3", {}, `Large latents and their points${trees.length > 1 ? `, ${tree.title.toLowerCase()}` : ""}`));
      parts.push(element("p", { class: "links" }, ...large.map((i) => this.latentLink(tree, i))));
    }
    if (features) {
      this.table ??= new FeatureTable(this.app);
      parts.push(element("h3", {}, "Features"), this.table.element());
    }
    return parts;
  }

  // Points taken with the lasso: what they are in, and which features fire on them.
  taken(members) {
    const { trees, points, features } = this.app, parts = [element("h2", {}, `${number(members.length)} points taken with the lasso`)];
    for (const tree of trees) {
      const count = new Map();
      for (const p of members) {
        const i = tree.holding(points.places[tree.factor].rows[p]);
        if (i >= 0) count.set(i, (count.get(i) ?? 0) + 1);
      }
      const most = [...count].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 8);
      const links = most.map(([i, n]) => this.link(`${number(tree.latent[i])}: ${number(n)} of ${number(tree.size[i])}`, { factor: tree.factor, latent: tree.latent[i], row: null }));
      parts.push(element("h3", {}, `Smallest concepts that they are in${trees.length > 1 ? `, factor ${tree.factor}` : ""}`), element("p", { class: "links" }, ...links));
    }
    const best = features ? features.best(members, 6) : [];
    if (best.length) parts.push(element("h3", {}, "Features that match them best"), element("p", { class: "links" }, ...best.map(({ feature, f1 }) => this.featureLink(feature, `${feature} (F1 ${decimal(f1, 2)})`))));
    return parts;
  }

  latent() {
    const { app } = this, { state, points } = app, tree = app.trees[state.factor], i = app.chosen();
    if (i < 0) return [element("p", {}, `Latent ${number(state.latent)} is not there.`)];
    const members = points.within(tree.factor, tree.start[i], tree.end(i));
    const exact = tree.latent[i] === state.latent;
    const parts = [
      element("h2", {}, `Latent ${number(tree.latent[i])}`, app.trees.length > 1 ? element("small", {}, ` ${tree.title}`) : ""),
    ];
    if (!exact) parts.push(element("p", {}, `Latent ${number(state.latent)} is not on this page; this is the smallest one above it that is.`));
    parts.push(
      facts([
        ["points", `${number(tree.size[i])} (${percent(tree.size[i] / tree.nRows)}), rows ${number(tree.start[i])} to ${number(tree.end(i) - 1)}`],
        ["drawn", points.total === tree.nRows && points.length === points.total ? null : number(members.length)],
        ["depth", number(tree.depth[i])],
        ["z", decimal(tree.z[i])],
        ["cluster", tree.nClusters > 1 ? number(tree.cluster(i)) : null],
        ...Array.from(points.columns.values(), ({ name, kind, values }) => [`mean ${name}`, kind === "label" ? null : decimal(mean(values, members))]),
      ]),
      element("p", { class: "links" },
        this.link("its own components", { view: `${tree.factor}:${tree.latent[i]}` }, { id: "own-view" }),
        this.link("enlarge in space", { enlarge: "space" }),
        this.link("enlarge in the tree", { enlarge: "tree" }),
        this.link("clear", { latent: null, row: null })),
    );
    const above = tree.above(i), inside = tree.largestInside(i, 6);
    if (state.row !== null) parts.push(...this.row(tree));
    if (above.length) parts.push(element("h3", {}, "Path: the concepts above"), element("p", { class: "links" }, ...above.map((j) => this.latentLink(tree, j))));
    if (inside.length) parts.push(element("h3", {}, "The largest concepts inside"), element("p", { class: "links" }, ...inside.map((j) => this.latentLink(tree, j))));
    if (app.features) parts.push(...this.scores(tree, i, members));
    return parts;
  }

  row(tree) {
    const { points, state } = this.app, p = below(points.samples, state.row);
    if (points.samples[p] !== state.row) return [element("p", {}, `Row ${number(state.row)} is not drawn.`)];
    const rows = [["depth", number(points.places[tree.factor].depth[p])]];
    for (const { name, values } of points.columns.values()) rows.push([name, decimal(values[p])]);
    return [element("h3", {}, `Row ${number(state.row)}`), facts(rows)];
  }

  scores(tree, i, members) {
    const { concepts } = this.app.points.places[tree.factor], c = below(concepts.latent, tree.latent[i]);
    const parts = [element("h3", {}, "What the judge says")];
    if (concepts.latent[c] === tree.latent[i]) {
      const best = concepts.best_feature[c];
      parts.push(facts([
        ["best feature", best < 0 ? "none" : this.featureLink(best, `${best}`)],
        ["F1", `${decimal(concepts.f1[c])} (chance ${decimal(concepts.chance[c])})${concepts.f1[c] > RECOVERED ? ", recovered" : ""}`],
        ["union", concepts.k[c] > 1 ? `${concepts.k[c]} features reach ${decimal(concepts.f1_union[c])}` : "of one feature"],
        ["absorbed", Number.isFinite(concepts.absorption[c]) ? `${percent(concepts.absorption[c])} of points (${percent(concepts.absorption_null[c])} if independent)` : "not asked below F1 0.5"],
        ["absorption on the edge", Number.isFinite(concepts.absorption_edge[c]) ? decimal(concepts.absorption_edge[c]) : null],
      ]));
    } else parts.push(element("p", {}, "It is not among the concepts that were scored."));
    const best = this.app.features.best(members, 5);
    if (best.length) {
      parts.push(element("h3", {}, "Best features, among the points drawn"));
      parts.push(element("p", { class: "links" }, ...best.map(({ feature, f1 }) => this.link(`${feature} (F1 ${decimal(f1, 2)})`, { ...this.app.featureChange(feature), factor: tree.factor, latent: tree.latent[i] }))));
    }
    return parts;
  }

  feature(feature) {
    const { app } = this, { features, state } = app;
    const parts = [element("h2", {}, `Feature ${number(feature)}`)];
    if (!(feature >= 0 && feature < features.total)) return [...parts, element("p", {}, `There are ${number(features.total)} features.`)];
    const fired = features.fired[feature];
    const on = fired ? `${number(fired)} of ${number(features.rows)} rows${2 * fired > features.rows ? ", dense" : ""}` : "nowhere: dead";
    const rows = [["fires on", on]];
    for (const tree of app.trees) {
      const match = app.points.places[tree.factor].features, found = match.latent[feature];
      const words = `F1 ${decimal(match.f1[feature])}, precision ${decimal(match.precision[feature], 2)}, recall ${decimal(match.recall[feature], 2)}`;
      const which = app.trees.length > 1 ? `match in factor ${tree.factor}` : "match";
      rows.push([which, found < 0 ? "none" : element("span", {}, this.link(`latent ${number(found)}`, { factor: tree.factor, latent: found, row: null }), ` ${words}`)]);
    }
    parts.push(facts(rows));
    if (fired && !features.place.has(feature)) parts.push(element("p", {}, "Where it fires is not on this page: features that match better took the room, or none of the points drawn has it."));
    const kinds = app.kinds;
    if (kinds) {
      parts.push(element("h3", {}, `Against latent ${number(state.latent)}, points drawn`));
      const words = { hits: "hit: inside, fires", missed: "missed: inside, silent", absorbed: "absorbed: inside, silent, and the feature of a smaller concept fires", added: "added: outside, fires" };
      parts.push(element("ul", { class: "marks" }, ...Object.keys(MARKS).map((kind) =>
        element("li", { "data-kind": kind }, element("span", { class: `mark ${kind}`, "aria-hidden": "true" }, SHAPES[kind]), element("b", {}, number(kinds[kind].length)), ` ${words[kind]}`))));
    }
    parts.push(...activations(app, feature));
    parts.push(element("p", { class: "links" },
      this.link("previous", app.featureChange(app.nextFeature(-1)), { title: "better match" }),
      this.link("next", app.featureChange(app.nextFeature(1)), { title: "worse match" }),
      this.link("clear", { feature: null, colour: "latent", tree: "latent" })));
    return parts;
  }
}
