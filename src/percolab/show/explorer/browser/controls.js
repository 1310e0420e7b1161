// What people touch: lists, buttons, keys, taps; and the colours of the page around the figures.

const KEYS = [
  ["/", "search"], ["↑ ↓ ← →", "latent above, inside, beside"], ["+ −", "zoom space"], [". ,", "zoom the tree"], ["0", "all in view"],
  ["c", "the latent's own components"], ["a", "components of all points"], ["[ ] or a drag", "turn, with three components"],
  ["n p", "next and previous feature"], ["Esc", "clear all, everything in view"], ["?", "this list"],
  ["tap", "pick a point's latent, or a rectangle; again: one concept down"], ["tap a colour", "show these points alone"],
  ["one finger", "down: the page; sideways: the picture"],
];

Object.assign(Explorer.prototype, {
  // ------------------------------------------------------------------ what the page looks like

  theme(model) {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const apply = () => {
      const ink = dark.matches ? "#c9c9c9" : "#444444", line = dark.matches ? "#666666" : "#999999";
      for (const figure of [this.space.figure, ...this.icicles.map((icicle) => icicle.figure)]) {
        for (const axis of [...figure.below, ...figure.left]) {
          axis.setv?.({ major_label_text_color: ink, axis_label_text_color: ink, axis_line_color: line, major_tick_line_color: line });
        }
      }
      const strong = dark.matches ? "#ffffff" : "#000000";
      model.get_model_by_name("ring_dots").glyph.line_color = { value: strong };
      this.space.ink = strong;
      const rest = getComputedStyle(document.documentElement).getPropertyValue("--rest").trim();
      this.icicles.forEach((icicle, k) => {
        model.get_model_by_name(`colours${k}`).nan_color = rest;
        model.get_model_by_name(`chosen${k}_quads`).glyph.line_color = { value: strong };
        model.get_model_by_name(`rectangles${k}_quads`).glyph.line_color = { value: dark.matches ? "#141414" : "#ffffff" };
      });
    };
    apply();
    dark.addEventListener("change", apply);
  },

  legend(id, scale, what = "") {
    const box = document.getElementById(id), name = what ? element("span", { class: "what" }, what) : "";
    if (scale.kinds) {
      const kinds = scale.kinds.map(([words, colour], k) => {
        const patch = element("i", { class: "patch" });
        patch.style.background = colour;
        if (id !== "space-legend" || k >= scale.palette.length) return element("span", {}, patch, words);
        return element("button", { type: "button", "aria-pressed": this.isolated === k, title: "show these points alone", onclick: () => this.isolate(k) }, patch, words);
      });
      return box.replaceChildren(name, ...kinds);
    }
    const bar = element("i", { class: "bar" });
    bar.style.background = `linear-gradient(to right, ${[0, 64, 128, 191, 255].map((i) => scale.palette[i]).join(",")})`;
    const short = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(2)))).replace("-", "−");
    return box.replaceChildren(name, short(scale.low), bar, short(scale.high));
  },

  // Show the points of one colour alone, or all again.
  isolate(kind) {
    this.isolated = this.isolated === kind ? null : kind;
    this.paint();
    this.choose();
  },

  say(words) {
    document.getElementById("status").textContent = words;
  },

  // ------------------------------------------------------------------ lists and buttons

  options() {
    const has = (name) => this.points.columns.has(name);
    const kept = { latent: true, depth: true, y: true, prediction: has("prediction"), error: has("error"), activation: this.features };
    const number = has("y") && this.points.columns.get("y").kind === "number";
    const onTree = { z: true, latent: true, recovery: this.features, f1: this.features, firing: this.features, y: number, error: has("error") };
    for (const [id, words, wanted] of [["colour", SPACE_COLOURS, kept], ["tree-colour", TREE_COLOURS, onTree]]) {
      const some = Object.keys(words).filter((name) => wanted[name]);
      document.getElementById(id).replaceChildren(...some.map((name) => element("option", { value: name }, words[name])));
    }
    const kinds = this.trees.map((_, k) => [`latent:${k}`, this.trees.length > 1 ? `latent of factor ${k}` : "latent"]);
    kinds.push(["row", "row"], ...(this.features ? [["feature", "feature"]] : []));
    document.getElementById("kind").replaceChildren(...kinds.map(([value, words]) => element("option", { value }, words)));
  },

  controls() {
    const { state } = this, set = (id, value) => (document.getElementById(id).value = value);
    set("colour", state.colour);
    set("tree-colour", state.tree);
    set("axes", state.axes);
    set("turn", state.turn);
    document.getElementById("turn-label").hidden = state.axes !== "123";
    for (const tool of this.space.figure.toolbar.tools) if (tool.type === "PanTool") tool.active = state.axes !== "123";
    document.getElementById("all-view").disabled = state.view === null;
  },

  wire() {
    const on = (id, event, react) => document.getElementById(id).addEventListener(event, react);
    on("colour", "change", (event) => {
      this.isolated = null;
      this.go({ colour: event.target.value }, false);
    });
    on("tree-colour", "change", (event) => this.go({ tree: event.target.value }, false));
    on("size", "input", (event) => this.space.resize(2 ** Number(event.target.value)));
    on("opacity", "input", (event) => this.space.fade(undefined, Number(event.target.value)));
    on("axes", "change", (event) => this.go({ axes: event.target.value, space: null }));
    on("turn", "input", (event) => this.turn(Number(event.target.value)));
    on("all-view", "click", () => this.go({ view: null }));
    on("fit", "click", () => this.fitAll());
    on("back", "click", () => history.back());
    on("forward", "click", () => history.forward());
    for (const id of ["keys", "help"]) on(id, "click", () => this.help());
    on("search", "submit", (event) => {
      event.preventDefault();
      this.search(document.getElementById("kind").value, document.getElementById("number").value);
    });
    for (const [id, by] of [["closer", 0.6], ["farther", 1 / 0.6]]) on(id, "click", () => this.zoomSpace(by));
    // The second of two quick taps comes as a double tap alone, and goes one concept further down as a slow one does.
    for (const kind of ["tap", "doubletap"]) {
      this.space.figure.on_event(kind, ({ x, y }) => {
        const p = this.space.near(x, y);
        p < 0 ? this.go({ latent: null, row: null }) : this.tapPoint(p);
      });
    }
    // With three components a drag turns the picture, and does not move it.
    this.space.figure.on_event("pan", ({ delta_x }) => this.state.axes === "123" && this.turn(Math.round(this.state.turn + delta_x / 3)));
    this.space.figure.on_event("rangesupdate", () => {
      this.space.moving();
      this.settle();
    });
    this.icicles.forEach((icicle) => {
      icicle.figure.on_event("tap", ({ x, y }) => this.tapTree(icicle, x, y));
      icicle.figure.on_event("doubletap", () => this.enlarge());
      icicle.figure.on_event("rangesupdate", () => this.moveTree(icicle));
    });
    // A finger that moves down scrolls the page; Bokeh would keep it.
    if (matchMedia("(pointer: coarse)").matches) {
      for (const { figure } of [this.space, ...this.icicles]) Bokeh.index.get_by_id(figure.id).canvas_view.events_el.style.touchAction = "pan-y";
    }
    addEventListener("popstate", () => this.restore());
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("resize", () => this.later("resized", 200, () => this.icicles.forEach((icicle) => icicle.draw())));
  },

  // Do something once nothing has asked for it for a while.
  later(name, wait, act) {
    this.timers ??= {};
    clearTimeout(this.timers[name]);
    this.timers[name] = setTimeout(act, wait);
  },

  // ------------------------------------------------------------------ moves

  moveTree(icicle) {
    this.later(`tree${icicle.tree.factor}`, 40, () => {
      icicle.look(...icicle.range());
      this.settle();
    });
  },

  // Keep where the picture is in the address, without a step for back.
  settle() {
    this.later("settled", SETTLED, () => {
      const icicle = this.icicles[this.state.factor], [from, to] = icicle.range(), [first, last] = icicle.all();
      this.state = { ...this.state, space: this.space.range(), rows: from <= first + 1 && to >= last - 1 ? null : [from, to] };
      this.shown = { ...this.shown, space: this.state.space, rows: this.state.rows };
      writeAddress(this.state, false);
    });
  },

  zoomSpace(by) {
    this.space.zoom(by);
    this.settle();
  },

  zoomTree(by) {
    this.icicles[this.state.factor].zoom(by);
    this.settle();
  },

  fitAll() {
    this.space.fit();
    this.icicles.forEach((icicle) => icicle.look(...icicle.all()));
    this.settle();
  },

  turn(angle) {
    this.go({ turn: ((angle % 360) + 360) % 360 }, false);
    this.space.moving();
  },

  // ------------------------------------------------------------------ search and keys

  search(kind, text) {
    const wanted = Number(text);
    if (text.trim() === "" || !Number.isInteger(wanted) || wanted < 0) return this.say("a number, please: 0, 1, 2, …");
    this.say("");
    const { factor } = this.state, tree = this.trees[factor];
    if (kind === "feature") return wanted < this.features.total ? this.go(this.featureChange(wanted)) : this.say(`there are ${number(this.features.total)} features`);
    if (kind.startsWith("latent:")) {
      const chosen = this.trees[Number(kind.slice(7))];
      return wanted < chosen.nLatents ? this.go({ factor: chosen.factor, latent: wanted, row: null }) : this.say(`there are ${number(chosen.nLatents)} latents`);
    }
    const p = below(this.points.samples, wanted);
    if (this.points.samples[p] !== wanted) return this.say(`row ${number(wanted)} is not among the points drawn`);
    const i = tree.holding(this.points.places[factor].rows[p]);
    return this.go({ row: wanted, latent: i < 0 ? null : tree.latent[i] });
  },

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape") return this.clear(event);
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const acts = {
      "/": () => document.getElementById("number").focus(),
      "?": () => this.help(),
      0: () => this.fitAll(),
      "+": () => this.zoomSpace(0.6), "=": () => this.zoomSpace(0.6), "-": () => this.zoomSpace(1 / 0.6),
      ".": () => this.zoomTree(0.5), ",": () => this.zoomTree(2),
      a: () => this.go({ view: null }),
      c: () => this.state.latent !== null && this.go({ view: `${this.state.factor}:${this.state.latent}` }),
      "[": () => this.turn(this.state.turn - 10), "]": () => this.turn(this.state.turn + 10),
      n: () => this.features && this.go(this.featureChange(this.nextFeature(1))),
      p: () => this.features && this.go(this.featureChange(this.nextFeature(-1))),
      ArrowUp: () => this.step("up"), ArrowDown: () => this.step("down"), ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    this.tips.box.hidden = true; // what the pointer is on is no longer what was picked
    act();
  },

  // From a latent to the concept above, the largest inside, or the one beside.
  step(where) {
    const tree = this.trees[this.state.factor], i = this.chosen();
    let next;
    if (i < 0) next = tree.groups(1, -1)[0];
    else if (where === "up") next = tree.above(i).at(-1);
    else if (where === "down") next = tree.largestInside(i, 1)[0];
    else next = tree.beside(i, where);
    if (next !== undefined && next >= 0) this.go({ latent: tree.latent[next], row: null });
  },

  clear(event) {
    const help = document.getElementById("help");
    if (!help.hidden) return this.help();
    if (event.target.blur && event.target !== document.body) event.target.blur();
    this.say("");
    const own = { colour: this.state.colour === "activation" ? "latent" : this.state.colour, tree: this.state.tree === "firing" ? "latent" : this.state.tree };
    this.isolated = null;
    this.go({ latent: null, row: null, feature: null, view: null, ...own });
    this.fitAll();
  },

  help() {
    const help = document.getElementById("help");
    help.hidden = !help.hidden;
    if (!help.childElementCount) help.append(element("h2", {}, "Keys"), facts(KEYS));
  },
});

const percolabExplorer = {
  async start(document_ready) {
    const script = document.getElementById("data");
    const data = await unpack(fromBase64(script.textContent));
    script.remove();
    const app = new Explorer(document_ready.document ?? Bokeh.documents[0], data, document.body.dataset.served === "true");
    await app.render();
    percolabExplorer.app = app;
    document.body.dataset.ready = "true";
  },
};
globalThis.percolabExplorer = percolabExplorer;
