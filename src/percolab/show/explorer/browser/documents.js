// A document as a strip of tokens; what can be known about its context, over the tree of its lexicon, position by position.

const SVG = "http://www.w3.org/2000/svg";
const SHOWN = 12; // features of a network that are drawn, those that fire most in the document
const WORD = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const byId = (id) => document.getElementById(id);
const shade = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function element(name, attributes = {}, text = "") {
  const made = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

class Documents {
  constructor(data) {
    this.data = data;
    this.count = data.number.length;
    this.state = { document: 0, at: 0, lexicon: null, context: null };
  }

  get k() { return this.state.lexicon ?? this.data.lexicon[this.state.document]; }
  get tree() { return this.data.trees[this.k]; }
  get row0() { return this.state.document * this.data.length; }
  /** The probability that the context is inside context c of the tree that is shown: the exact one, or a network's. */
  inside(t, c, source = this.data) { return source.inside[this.k][(this.row0 + t) * this.tree.latent.length + c] / 255; }
  /** What a network is to the document that is shown. */
  role({ trained_on }) { return !trained_on.length ? "untrained" : trained_on.includes(this.data.lexicon[this.state.document]) ? "trained" : "other"; }
  token(t) { return this.data.tokens[this.row0 + t]; }
  rowOf(t) { return this.tree.row[this.token(t)]; }
  /** The place of a latent among the contexts of the tree that is shown; -1 where it is another tree's. */
  placeOf(latent, lexicon) { return lexicon === this.k ? this.tree.latent.indexOf(latent) : -1; }
  truth(t) { return this.placeOf(this.data.context[this.row0 + t], this.data.lexicon[this.state.document]); }
  believed(t) { return this.placeOf(this.data.believed[this.row0 + t], this.data.believed_lexicon[this.row0 + t]); }

  /** The probability of each context itself: that it is inside, and inside none of those below. */
  alone(t, source = this.data) {
    const { latent, upper } = this.tree, own = Array.from(latent, (_, c) => this.inside(t, c, source));
    const out = own.slice();
    own.forEach((p, c) => { if (upper[c] >= 0) out[upper[c]] -= p; });
    return out.map((p) => Math.max(0, p));
  }

  go(change) {
    const before = this.state, next = { ...before, ...change };
    next.document = Math.min(Math.max(next.document, 0), this.count - 1);
    next.at = Math.min(Math.max(next.at, 0), this.data.length - 1);
    if (next.document !== before.document) { next.lexicon = null; next.context = null; }
    if (next.lexicon !== before.lexicon) next.context = null;
    this.state = next;
    if (next.document !== before.document || next.lexicon !== before.lexicon || !this.drawn) this.drawDocument();
    if (next.context !== before.context) this.drawFollowed();
    this.drawPosition();
    this.drawn = true;
    try {
      history.replaceState(null, "", `#document=${this.data.number[next.document]}&at=${next.at}`);
    } catch { /* a notebook's frame has no address */ }
  }

  find(number) {
    const found = Array.from(this.data.number).indexOf(number);
    byId("status").textContent = found < 0 ? `Document ${number} is not on this page.` : "";
    if (found >= 0) this.go({ document: found, at: 0 });
  }

  // ------------------------------------------------------------------ a document

  drawDocument() {
    const { data, tree } = this, V = tree.row.length;
    byId("number").value = data.number[this.state.document];
    byId("lexicon").value = this.k;
    byId("strip").replaceChildren(...Array.from({ length: data.length }, (_, t) => {
      const made = element("button", { type: "button", tabindex: -1, title: `position ${t}: token ${this.token(t)}` }, String(this.token(t)));
      made.style.borderBottomColor = STEADY[Math.floor((255 * this.rowOf(t)) / V)];
      made.classList.toggle("fresh", !!data.renewed[this.row0 + t]);
      made.addEventListener("click", () => this.go({ at: t }));
      return made;
    }));
    this.drawTree();
    this.drawField(byId("field"), data, BLUE);
    this.drawNetworks();
    this.drawFloor();
    this.drawFollowed();
    this.drawFeatures();
  }

  drawTree() {
    const { tree } = this, V = tree.row.length, levels = Math.max(...tree.level) + 1, svg = byId("tree");
    svg.setAttribute("viewBox", `0 0 ${levels + 0.4} ${V}`);
    this.rects = Array.from(tree.latent, (latent, c) => {
      const box = { x: tree.level[c] + 0.03, y: V - tree.start[c] - tree.size[c], width: 0.94, height: tree.size[c] };
      const made = element("svg:rect", { ...box, fill: BLUE, stroke: "currentColor", "stroke-width": 1, "vector-effect": "non-scaling-stroke" });
      made.append(element("svg:title"));
      made.addEventListener("click", () => this.go({ context: this.state.context === c ? null : c }));
      return made;
    });
    const shades = Array.from({ length: 32 }, (_, i) => element("svg:rect", {
      class: "frame", x: levels + 0.1, width: 0.25, y: V - ((i + 1) * V) / 32, height: V / 32, fill: STEADY[i * 8],
    }));
    this.line = element("svg:line", { class: "frame", x1: 0, x2: levels + 0.4, stroke: "currentColor", "stroke-width": 2, "vector-effect": "non-scaling-stroke" });
    svg.replaceChildren(...this.rects, ...shades, this.line);
  }

  /** Contexts are in preorder, so that those inside are painted over those around them. */
  drawField(field, source, colour) {
    const { tree, data } = this, V = tree.row.length, wide = 8, high = Math.min(V, 512);
    const ink = shade("--ink");
    field.width = wide * data.length;
    field.height = high;
    const pen = field.getContext("2d"), y = (row) => Math.round(high - (row * high) / V); // whole pixels leave no seams
    for (let t = 0; t < data.length; t++) {
      const sums = this.alone(t, source);
      tree.upper.forEach((above, c) => { if (above >= 0) sums[c] += sums[above]; });
      sums.forEach((p, c) => {
        const top = y(tree.start[c] + tree.size[c]), box = [t * wide, top, wide, y(tree.start[c]) - top];
        pen.clearRect(...box);
        pen.globalAlpha = Math.min(1, p);
        pen.fillStyle = colour;
        pen.fillRect(...box);
      });
      pen.globalAlpha = 1;
      pen.fillStyle = ink;
      pen.fillRect(t * wide + 2, y(this.rowOf(t)) - 3, 4, 4);
    }
  }

  /** What a linear probe reads from each network, below the exact belief and on the same scale. */
  drawNetworks() {
    const said = { trained: "trained on this document's lexicon", other: "trained on another lexicon", untrained: "untrained" };
    byId("networks").replaceChildren(...this.data.networks.flatMap((network) => {
      const role = this.role(network), field = element("canvas", { class: "network", "data-role": role });
      const title = element("h3", {}, `${network.name}, ${said[role]}: what a linear probe reads from its activations`);
      title.style.color = `var(--${role})`;
      this.drawField(field, network, shade(`--${role}`));
      field.addEventListener("click", (event) => this.tapField(event));
      return [title, field];
    }));
  }

  tapField(event) {
    const box = event.target.getBoundingClientRect();
    this.go({ at: Math.floor(((event.clientX - box.left) / box.width) * this.data.length) });
  }

  drawFloor() {
    const values = this.data.floor.subarray(this.row0, this.row0 + this.data.length), top = Math.max(...values, 1);
    byId("floor").setAttribute("viewBox", `0 0 ${this.data.length} ${top * 1.05}`);
    byId("floor").replaceChildren(this.curve(Array.from(values, (v) => top * 1.05 - v)));
  }

  curve(heights) {
    return element("svg:polyline", { points: heights.map((v, t) => `${t},${v} ${t + 1},${v}`).join(" ") });
  }

  drawFollowed() {
    const c = this.state.context, place = byId("followed");
    place.replaceChildren();
    Array.from(byId("strip").children, (button, t) => {
      const row = this.rowOf(t), { start, size } = this.tree;
      button.classList.toggle("inside", c !== null && row >= start[c] && row < start[c] + size[c]);
    });
    if (c === null) return;
    const svg = element("svg:svg", { class: "curve", viewBox: `0 0 ${this.data.length} 1.04`, preserveAspectRatio: "none" });
    for (const source of [...this.data.networks, this.data]) {
      const curve = this.curve(Array.from({ length: this.data.length }, (_, t) => 1.02 - this.inside(t, c, source)));
      curve.style.stroke = `var(--${source === this.data ? "ink" : this.role(source)})`;
      svg.append(curve);
    }
    place.append(element("h3", {}, `Belief in context ${this.tree.latent[c]}, ${this.tree.size[c]} tokens: from 0 to 1${this.data.networks.length ? "; the exact one in black or white, networks in their colours" : ""}`), svg);
  }

  drawFeatures() {
    const { data } = this, parts = [];
    for (const coder of data.features) {
      const totals = new Map();
      for (let i = coder.end[this.row0]; i < coder.end[this.row0 + data.length]; i++) {
        totals.set(coder.feature[i], (totals.get(coder.feature[i]) ?? 0) + coder.level[i]);
      }
      const most = [...totals].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, SHOWN).map(([feature]) => feature);
      parts.push(element("h3", {}, `${coder.name}: those that fire most here, ${most.length} of ${coder.n_features}`));
      for (const feature of most) {
        const best = coder.best[this.k], lane = element("div", { class: "lane firing", "data-feature": feature });
        const said = best && best.latent[feature] >= 0 ? `, best for context ${best.latent[feature]} (F1 ${best.f1[feature].toFixed(2)})` : "";
        lane.title = `feature ${feature}${said}`;
        for (let t = 0; t < data.length; t++) lane.append(element("i"));
        for (let t = 0; t < data.length; t++) {
          for (let i = coder.end[this.row0 + t]; i < coder.end[this.row0 + t + 1]; i++) {
            if (coder.feature[i] === feature) lane.children[t].style.opacity = coder.level[i] / 255;
          }
          if (!lane.children[t].style.opacity) lane.children[t].style.opacity = 0;
        }
        parts.push(element("small", {}, lane.title), lane);
      }
    }
    byId("features").replaceChildren(...parts);
  }

  // ------------------------------------------------------------------ a position

  drawPosition() {
    const { data, tree } = this, t = this.state.at, V = tree.row.length, row = this.rowOf(t);
    byId("position").value = t;
    byId("at").textContent = `position ${t} of ${data.length - 1}`;
    byId("cursor").style.left = `${(100 * t) / data.length}%`;
    byId("cursor").style.width = `${100 / data.length}%`;
    this.line.setAttribute("y1", V - row - 0.5);
    this.line.setAttribute("y2", V - row - 0.5);
    const truth = this.truth(t), believed = this.believed(t);
    this.rects.forEach((rect, c) => {
      const p = this.inside(t, c);
      rect.setAttribute("fill-opacity", (0.04 + 0.96 * p).toFixed(3));
      rect.setAttribute("stroke", c === truth ? "var(--truth)" : "currentColor");
      rect.setAttribute("stroke-width", c === truth ? 4 : c === believed || c === this.state.context ? 2.5 : 0.6);
      rect.firstChild.textContent = `context ${tree.latent[c]}: ${tree.size[c]} tokens, belief ${p.toFixed(2)}`;
    });
    this.keepInView(t);
    this.drawDetails(t);
  }

  keepInView(t) {
    const scroll = document.querySelector(".scroll"), button = byId("strip").children[t];
    if (button.offsetLeft < scroll.scrollLeft || button.offsetLeft + button.offsetWidth > scroll.scrollLeft + scroll.clientWidth) {
      scroll.scrollLeft = button.offsetLeft - scroll.clientWidth / 2;
    }
  }

  drawDetails(t) {
    const { data, tree } = this, at = this.row0 + t, k = data.lexicon[this.state.document];
    const named = (latent, lexicon) => {
      const c = data.trees[lexicon].latent.indexOf(latent);
      return `context ${latent} (${data.trees[lexicon].size[c]} tokens)`;
    };
    let first = t;
    while (!data.renewed[this.row0 + first]) first--;
    const lines = [
      ["token", String(data.tokens[at])],
      ["true context", `${named(data.context[at], k)}, drawn ${t === first ? "here" : `${t - first} token${t - first > 1 ? "s" : ""} ago`}`],
      ["believed", data.believed[at] < 0 ? "nothing above 1/2" : named(data.believed[at], data.believed_lexicon[at])],
      ["floor", `${data.floor[at].toFixed(2)} nats`],
    ];
    if (data.trees.length > 1) {
      const shares = Array.from(data.trees, (_, j) => `${j}: ${(data.of_lexicon[at * data.trees.length + j] / 255).toFixed(2)}`);
      lines.push(["belief in lexicons", `${shares.join(", ")} (this document's is ${k})`]);
    }
    const truth = this.truth(t);
    if (truth >= 0 && data.networks.length) {
      const each = [["exact", data], ...data.networks.map((network) => [network.name, network])];
      lines.push(["belief in the true context", each.map(([name, source]) => `${name}: ${this.inside(t, truth, source).toFixed(2)}`).join(", ")]);
    }
    const order = this.alone(t).map((p, c) => [p, c]).sort((a, b) => b[0] - a[0]).slice(0, 4).filter(([p]) => p > 0.005);
    lines.push(["most probable", order.map(([p, c]) => `context ${tree.latent[c]}: ${p.toFixed(2)}`).join(", ") || "nothing in this lexicon"]);
    const table = element("table");
    for (const [name, value] of lines) {
      const line = element("tr");
      line.append(element("th", {}, name), element("td", {}, value));
      table.append(line);
    }
    byId("details").replaceChildren(element("h2", {}, `Position ${t}`), table);
  }

  // ------------------------------------------------------------------ controls

  listen() {
    byId("name").textContent = this.data.name;
    byId("lead").textContent = `${this.data.lead}. Tokens come from a hidden context, a branch of the tree, until a fresh one is drawn. The stronger the blue, the surer a perfect reader, who knows the tokens so far, is that the context lies there. Move with the slider or ← →.`;
    byId("position").max = this.data.length - 1;
    byId("lanes").style.minWidth = `${15 * this.data.length}px`;
    byId("lexicon").replaceChildren(...this.data.trees.map((_, k) => element("option", { value: k }, String(k))));
    byId("lexicon").addEventListener("change", (event) => this.go({ lexicon: Number(event.target.value) }));
    byId("position").addEventListener("input", (event) => this.go({ at: Number(event.target.value) }));
    const step = (id, document, at) => byId(id).addEventListener("click", () => this.go({ document: this.state.document + document, at: document ? 0 : this.state.at + at }));
    step("left", 0, -1); step("right", 0, 1); step("before", -1, 0); step("after", 1, 0);
    byId("search").addEventListener("submit", (event) => { event.preventDefault(); this.find(Number(byId("number").value)); });
    byId("field").addEventListener("click", (event) => this.tapField(event));
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || ["INPUT", "SELECT"].includes(event.target.tagName)) return;
      const word = WORD[event.key];
      if (event.key === "Escape") this.go({ context: null });
      else if (event.key === "Home" || event.key === "End") this.go({ at: event.key === "Home" ? 0 : this.data.length - 1 });
      else if (word) this.go(word[0] ? { document: this.state.document + word[0], at: 0 } : { at: this.state.at + word[1] });
      else return;
      event.preventDefault();
    });
  }
}

(async () => {
  const app = new Documents(await unpack(fromBase64(byId("data").textContent)));
  window.percolabExplorer = { app };
  app.listen();
  const asked = Object.fromEntries(location.hash.slice(1).split("&").map((part) => part.split("=")));
  const found = Array.from(app.data.number).indexOf(Number(asked.document));
  const sure = app.data.renewed.subarray(1, app.data.length).findIndex(Boolean); // the last token of the first context
  app.go({ document: Math.max(0, found), at: /^\d{1,9}$/.test(asked.at ?? "") ? Number(asked.at) : Math.max(0, sure) });
  document.body.dataset.ready = "true";
})();
