// The explorer: one state, and what follows from it. `go` changes the state; `render` shows what differs.

const SPACE_COLOURS = { latent: "large latents", depth: "depth", y: "y", prediction: "prediction", error: "error", activation: "the feature's activation" };
const TREE_COLOURS = { z: "z, the latent's value", latent: "large latents, as in space", recovery: "recovery", f1: "best feature's F1", firing: "share on which the feature fires", y: "mean y", error: "mean error" };

class Explorer {
  constructor(document, data, served) {
    this.data = data;
    this.served = served;
    this.trees = data.trees.map((columns, k) => new Tree(columns, k));
    this.whole = this.points = new Points(data);
    this.wholeFeatures = this.features = data.features ? new Features(data.features, this.points) : null;
    this.space = new Space(document);
    this.icicles = this.trees.map((tree) => new Icicle(document, tree));
    this.panel = new Panel(this);
    this.lasso = new Lasso(this);
    this.tips = new Tips(this);
    this.isolated = null;
    this.theme(document);
    this.options();
    this.trees.forEach((tree, k) => (window.document.getElementById(`title${k}`).textContent = tree.title));
    window.document.getElementById("name").textContent = data.name;
    this.wire();
    this.shown = {};
    this.state = fromAddress(location.hash);
  }

  // ------------------------------------------------------------------ state

  go(change, adds = true) {
    if (change.enlarge) return change.enlarge === "tree" ? this.enlarge() : this.enlargeSpace();
    const next = { ...this.state, ...change };
    if (next.latent !== null && change.view === undefined && !this.viewHolds(next)) next.view = null; // the view follows the pick
    if (next.view !== this.state.view) next.space = null;
    if (toAddress(next) === toAddress(this.state)) return;
    this.state = next;
    writeAddress(next, adds);
    this.render();
  }

  // Take a state from an address, by hand or by back and forward.
  restore() {
    this.state = fromAddress(location.hash);
    this.render(true);
  }

  // Whether the points in view, those of a latent, include those of the latent that is picked.
  viewHolds({ view, factor, latent }) {
    const viewed = this.viewed(view), tree = this.trees[factor], i = tree.find(latent), whole = tree.find(viewed.latent ?? -1);
    return viewed.latent === null || i < 0 || (viewed.factor === factor && tree.start[whole] <= tree.start[i] && tree.end(i) <= tree.end(whole));
  }

  // Bring what is picked into view, unless it was picked there.
  follow() {
    const tree = this.trees[this.state.factor], i = this.chosen();
    if (i < 0 || this.state.row !== null || this.space.shows(this.points.within(tree.factor, tree.start[i], tree.end(i)))) return;
    this.enlargeSpace();
  }

  chosen() {
    const { latent, factor } = this.state;
    return latent === null || !this.trees[factor] ? -1 : this.trees[factor].find(latent);
  }

  async render(moved = false) {
    const state = this.state, old = this.shown;
    if (!this.trees[state.factor]) state.factor = 0;
    if (state.view !== old.view) await this.enter(state.view);
    if (state !== this.state) return; // something else was asked for meanwhile
    const differs = (...names) => names.some((name) => state[name] !== old[name]);
    const reshaped = differs("view", "axes", "turn");
    if (reshaped) this.reshape();
    if (reshaped || differs("colour") || (state.colour === "activation" && differs("feature"))) this.paint();
    if (differs("view", "axes") && !state.space) this.space.fit();
    if (state.space && (moved || old.space === undefined)) this.space.look(state.space);
    else if (moved && !state.space && old.space) this.space.fit();
    const picked = reshaped || differs("latent", "factor", "row", "feature", "colour");
    if (picked) this.choose();
    if (differs("latent", "factor") && !moved && old.rows !== undefined) this.follow();
    const recoloured = picked || differs("tree");
    if (recoloured) this.paintTrees();
    if (old.rows === undefined || moved) this.lookTrees();
    else if (recoloured) this.icicles.forEach((icicle) => icicle.draw());
    if (differs("latent", "factor") && old.rows !== undefined && this.chosen() >= 0) this.icicles[state.factor].reveal(this.chosen());
    this.controls();
    this.panel.show();
    this.shown = { ...state };
  }

  // ------------------------------------------------------------------ space

  // Change to the components of a latent; served, its points are read first.
  async enter(view) {
    const { factor, latent } = this.viewed(view);
    if (this.served && latent !== null) {
      this.say("reading …");
      const answer = await fetch(`latent?factor=${factor}&latent=${latent}`).catch(() => null);
      if (!answer?.ok) return this.say(answer ? `the server answered ${answer.status}` : "the server does not answer");
      const part = await unpack(new Uint8Array(await answer.arrayBuffer()));
      this.trees[factor].refine(part.tree);
      this.grouped = null; // places in the list have moved
      this.points = new Points(part);
      this.features = part.features ? new Features(part.features, this.points) : null;
      this.say("");
    } else [this.points, this.features] = [this.whole, this.wholeFeatures];
  }

  viewed(view) {
    const found = /^(\d+):(\d+)$/.exec(view ?? "");
    const factor = found ? Number(found[1]) : 0;
    if (!found || !this.trees[factor] || this.trees[factor].find(Number(found[2])) < 0) return { factor: 0, latent: null };
    return { factor, latent: Number(found[2]) };
  }

  reshape() {
    const { factor, latent } = this.viewed(this.state.view), tree = this.trees[factor];
    const plane = this.points.plane(tree, latent);
    const { axes, share, index } = this.points.places3(plane, tree);
    const which = ["12", "13", "23", "123"].includes(this.state.axes) ? this.state.axes : "12";
    const [x, y] = project(axes, which, this.state.turn);
    this.space.place(x, y, index, this.points.length);
    const of = this.points.planes.latent[plane];
    const whose = of < 0 ? "all points" : `latent ${number(of)}${of === latent ? "" : `, the nearest above ${number(latent)} that has its own`}`;
    const [a, b] = which, part = (c) => percent(share[c - 1]), together = percent(share[0] + share[1] + share[2]);
    const shown = which === "123" ? `1 to 3 (${together} of the variance)` : `${a} across (${part(a)} of the variance), ${b} up (${part(b)})`;
    document.getElementById("plane").textContent = `principal components of ${whose}, ${shown}`;
    document.getElementById("sample").textContent = index.length < this.points.length ? `${number(index.length)} points drawn` : this.sampled();
    this.viewGroup = of < 0 ? [0, -1] : [factor, tree.find(of)];
  }

  sampled() {
    const { length, total } = this.points;
    return length < total ? `${number(length)} of ${number(total)} points, a uniform random sample` : `${number(length)} points`;
  }

  paint() {
    const { colour } = this.state, { points } = this;
    let values, scale;
    const column = points.columns.get(colour);
    if (column && column.kind === "number") [values, scale] = [column.values, numberScale(column.values, "signed")];
    else if (column && column.kind === "label") {
      values = Float32Array.from(column.values, (v) => v % GROUPS.length);
      scale = kindScale(GROUPS.map((shade, i) => [`label ≡ ${i} mod ${GROUPS.length}`, shade]));
    } else if (column) [values, scale] = [column.values, kindScale([["right", BLUE], ["wrong", VERMILION]])];
    else if (colour === "depth") {
      values = Float32Array.from(points.places[this.state.factor].depth);
      scale = numberScale(values, "steady");
    } else if (colour === "activation" && this.features && this.state.feature !== null) {
      values = this.features.activation(this.state.feature);
      scale = numberScale(values, "rising");
    } else [values, scale] = this.byGroup();
    if (!scale.kinds) this.isolated = null;
    if (this.isolated !== null) values = values.map((value) => (value === this.isolated ? value : NaN));
    this.space.colour(values, scale);
    const of = this.trees.length > 1 && scale.factor !== undefined ? ` of factor ${scale.factor}` : "";
    this.legend("space-legend", scale, (scale.name ?? SPACE_COLOURS[colour] ?? SPACE_COLOURS.latent) + of);
  }

  // Large latents of the picture, each in its colour; for points and for the tree.
  byGroup() {
    const [factor, whole] = this.viewGroup, tree = this.trees[factor], groups = tree.groups(GROUPS.length, whole);
    const values = new Float32Array(this.points.length).fill(NaN);
    groups.forEach((i, g) => {
      for (const p of this.points.within(factor, tree.start[i], tree.end(i))) values[p] = g;
    });
    this.grouped = { factor, groups };
    return [values, { ...kindScale(groups.map((i, g) => [number(tree.latent[i]), GROUPS[g]]), "others"), factor, name: "latent" }];
  }

  choose() {
    this.lasso.drop();
    const { state } = this, i = this.chosen(), tree = this.trees[state.factor];
    const members = i < 0 ? null : this.points.within(tree.factor, tree.start[i], tree.end(i));
    const feature = this.features && state.feature !== null && i >= 0;
    this.kinds = feature ? this.features.compare(state.feature, tree.factor, tree.latent[i], tree.start[i], tree.end(i)) : null;
    this.space.mark(this.kinds);
    this.space.highlight(feature ? [] : members);
    if (state.feature !== null && i < 0) this.space.fade(false);
    const p = state.row === null ? -1 : below(this.points.samples, state.row);
    this.space.ring(p >= 0 && this.points.samples[p] === state.row ? p : null);
    this.icicles.forEach((icicle, k) => {
      icicle.chosen = k === state.factor ? i : -1;
      const { rows } = this.points.places[k];
      const lines = this.kinds ?? (this.features && state.feature !== null ? { hits: this.features.firing(state.feature) } : null);
      icicle.kinds = lines && Object.fromEntries(Object.entries(lines).map(([kind, points]) => [kind, Array.from(points, (q) => rows[q])]));
    });
  }

  // A point was tapped: its colour's latent or, where that is picked already, the next one down towards the point.
  tapPoint(p) {
    const factor = this.state.colour === "latent" && this.grouped ? this.grouped.factor : this.state.factor;
    const tree = this.trees[factor], row = this.points.places[factor].rows[p], now = factor === this.state.factor ? this.chosen() : -1;
    let i = now >= 0 && tree.has(now, row) ? tree.towards(now, row) : -1;
    if (i < 0) i = (this.grouped?.factor === factor ? this.grouped.groups : []).find((g) => tree.has(g, row)) ?? tree.holding(row);
    if (now >= 0 && tree.has(now, row) && tree.size[i] > tree.size[now]) i = now;
    this.go({ factor, latent: i < 0 ? null : tree.latent[i], row: this.points.samples[p] });
  }

  // ------------------------------------------------------------------ trees

  paintTrees() {
    for (const icicle of this.icicles) {
      const [value, scale] = this.treeColour(icicle.tree);
      icicle.colour(value, scale);
      if (icicle.tree.factor === this.state.factor) this.legend("tree-legend", scale, scale.name);
    }
  }

  treeColour(tree) {
    const { points, features, state } = this, how = state.tree;
    const inside = (i) => points.within(tree.factor, tree.start[i], tree.end(i));
    if (how === "latent") {
      if (!this.grouped) this.byGroup();
      const { factor, groups } = this.grouped;
      const value = (i) => (factor !== tree.factor ? NaN : groups.findIndex((g) => tree.start[g] <= tree.start[i] && tree.end(i) <= tree.end(g)));
      return [(i) => (value(i) < 0 ? NaN : value(i)), { ...kindScale(groups.map((i, g) => [number(this.trees[factor].latent[i]), GROUPS[g]]), "others"), name: "latent" }];
    }
    if ((how === "f1" || how === "recovery") && features) {
      const { concepts } = points.places[tree.factor];
      const score = (i) => {
        const c = below(concepts.latent, tree.latent[i]);
        return concepts.latent[c] === tree.latent[i] ? c : -1;
      };
      if (how === "f1") return [(i) => (score(i) < 0 ? NaN : concepts.f1[score(i)]), numberScale([0, 1], "share")];
      const outcome = (c) => (c < 0 ? NaN : concepts.f1[c] > RECOVERED ? 0 : concepts.f1_union[c] > RECOVERED ? 1 : 2);
      return [(i) => outcome(score(i)), kindScale(OUTCOMES, "not scored")];
    }
    if (how === "firing" && features && state.feature !== null) {
      const mask = features.fires(state.feature);
      return [(i) => mean(mask, inside(i)), numberScale([0, 1], "share")];
    }
    const column = points.columns.get(how);
    if (column && column.kind !== "label") {
      const scale = column.kind === "wrong" ? numberScale([0, 1], "share") : numberScale(column.values, "signed");
      return [(i) => mean(column.values, inside(i)), scale];
    }
    return [(i) => tree.z[i], numberScale(tree.z, "signed")];
  }

  lookTrees() {
    this.icicles.forEach((icicle, k) => icicle.look(...(this.state.rows && k === this.state.factor ? this.state.rows : icicle.all())));
    const i = this.chosen();
    if (i >= 0 && !this.state.rows) this.icicles[this.state.factor].reveal(i);
  }

  enlarge() {
    const tree = this.trees[this.state.factor], i = this.chosen();
    if (i < 0) return;
    this.icicles[tree.factor].look(tree.start[i] - 0.05 * tree.size[i], tree.end(i) + 0.05 * tree.size[i]);
    this.settle();
  }

  enlargeSpace() {
    const tree = this.trees[this.state.factor], i = this.chosen();
    if (i < 0) return;
    this.space.fit(this.points.within(tree.factor, tree.start[i], tree.end(i)));
    this.settle();
  }

  tapTree(icicle, row, size) {
    const i = icicle.at(Math.floor(row), size), { tree } = icicle;
    if (i >= 0) this.go({ factor: tree.factor, latent: tree.latent[i], row: null });
  }

  // ------------------------------------------------------------------ features

  bestMatch(feature) {
    const found = this.trees.map((tree) => ({ factor: tree.factor, ...this.matchIn(tree.factor, feature) }));
    return found.reduce((a, b) => (b.f1 > a.f1 ? b : a));
  }

  matchIn(factor, feature) {
    const { latent, f1 } = this.points.places[factor].features;
    return { latent: latent[feature], f1: f1[feature] };
  }

  featureChange(feature) {
    const known = this.features && feature >= 0 && feature < this.features.total;
    const match = known ? this.bestMatch(feature) : { factor: this.state.factor, latent: -1 };
    return { feature, row: null, factor: match.factor, latent: match.latent < 0 ? null : match.latent, colour: "activation", tree: "firing" };
  }

  nextFeature(step) {
    const { shown, place } = this.features, now = place.get(this.state.feature) ?? (step > 0 ? -1 : shown.length);
    return shown[(now + step + shown.length) % shown.length];
  }
}
