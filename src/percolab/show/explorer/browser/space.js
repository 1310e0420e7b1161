// Points in space: Bokeh's scatter of all of them, of those picked, and of what a feature does.

const FEWER = 6000; // points while moving, where there is no graphics processor
const FEW = 100; // points picked that get an outline
const NEAR = 14; // pixels between a tap and a point

class Space {
  constructor(document) {
    this.figure = document.get_model_by_name("space");
    this.mapper = document.get_model_by_name("space_colours");
    this.model = (name) => document.get_model_by_name(name);
    this.slow = SLOW;
    this.x = this.y = new Float32Array(0);
    this.index = this.position = new Int32Array(0);
  }

  // Take coordinates of points; `index` says which points they are, of `length` in all.
  place(x, y, index, length) {
    [this.x, this.y, this.index] = [x, y, index];
    this.position = new Int32Array(length).fill(-1);
    index.forEach((point, i) => (this.position[point] = i));
    this.resize();
  }

  resize(times = this.times ?? 1) {
    this.times = times;
    this.dot = times * Math.min(7, Math.max(2.2, 520 / Math.sqrt(this.index.length)));
    for (const name of ["cloud_dots", "thin_dots"]) this.model(name).glyph.size = { value: this.dot };
    this.model("picked_dots").glyph.size = { value: this.dot + 2 };
    const marks = Math.min(8, this.dot + 2.5);
    for (const kind of Object.keys(MARKS)) this.model(`${kind}_dots`).glyph.size = { value: kind === "hits" ? this.dot + 1 : marks };
  }

  // Colour the points by a value of each of all points.
  colour(values, scale) {
    this.values = values;
    this.mapper.setv({ palette: scale.palette, low: scale.low, high: scale.high });
    const own = pick(values, this.index), places = [...own.keys()];
    const order = [...places.filter((i) => Number.isNaN(own[i])), ...places.filter((i) => !Number.isNaN(own[i]))]; // colours on top
    this.model("cloud").data = { x: pick(this.x, order), y: pick(this.y, order), value: pick(own, order) };
    const step = this.slow && own.length > 2 * FEWER ? Math.ceil(own.length / FEWER) : 0;
    const some = step ? order.filter((_, i) => i % step === 0) : [];
    this.thins = step > 0;
    this.model("thin").data = { x: pick(this.x, some), y: pick(this.y, some), value: pick(own, some) };
    this.thins ? this.moving() : this.rest();
  }

  // Show some points above the others, which fade; null for none.
  highlight(points) {
    const here = points === null ? [] : this.seen(points);
    // A few points among many are found by their outline.
    this.model("picked_dots").glyph.line_color = { value: here.length <= FEW ? this.ink : null };
    this.model("picked").data = { x: pick(this.x, here), y: pick(this.y, here), value: pick(this.values, pick(this.index, here)) };
    this.fade(points !== null);
  }

  // Show what a feature does, by kind; null for nothing.
  mark(kinds) {
    for (const kind of Object.keys(MARKS)) {
      const here = kinds ? this.seen(kinds[kind]) : [];
      this.model(kind).data = { x: pick(this.x, here), y: pick(this.y, here) };
    }
  }

  ring(point) {
    const here = point === null ? [] : this.seen([point]);
    this.model("ring").data = { x: pick(this.x, here), y: pick(this.y, here) };
  }

  fade(faded = this.faded, opacity = this.opacity ?? 0.8) {
    [this.faded, this.opacity] = [faded, opacity];
    for (const name of ["cloud_dots", "thin_dots"]) this.model(name).glyph.fill_alpha = { value: faded ? 0.22 * opacity : opacity };
  }

  // Whether points can be seen: half of them are in view, and they do not fill less than a twelfth of its width.
  shows(points) {
    const here = this.seen(points), [x0, x1, y0, y1] = this.range();
    const inView = here.filter((i) => this.x[i] >= x0 && this.x[i] <= x1 && this.y[i] >= y0 && this.y[i] <= y1);
    const wide = (values) => here.reduce((most, i) => Math.max(most, values[i]), -Infinity) - here.reduce((least, i) => Math.min(least, values[i]), Infinity);
    return !here.length || (2 * inView.length >= here.length && Math.max(wide(this.x) / (x1 - x0), wide(this.y) / (y1 - y0)) >= 1 / 12);
  }

  seen(points) {
    const here = [];
    for (const point of points) if (this.position[point] >= 0) here.push(this.position[point]);
    return here;
  }

  // Fewer points while the picture moves, all of them when it rests.
  moving() {
    if (!this.thins) return;
    this.model("cloud_dots").visible = false;
    this.model("thin_dots").visible = true;
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.rest(), 250);
  }

  rest() {
    this.model("thin_dots").visible = false;
    this.model("cloud_dots").visible = true;
  }

  // Bring all points, or some, into view; both axes keep one scale.
  fit(points = null) {
    const here = points === null ? this.index.keys() : this.seen(points);
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const i of here) {
      x0 = Math.min(x0, this.x[i]); x1 = Math.max(x1, this.x[i]);
      y0 = Math.min(y0, this.y[i]); y1 = Math.max(y1, this.y[i]);
    }
    if (x0 > x1) return;
    const width = this.figure.inner_width || 600, height = this.figure.inner_height || 400;
    const unit = Math.max((x1 - x0) / width, (y1 - y0) / height, 1e-9) * 0.54;
    this.look([(x0 + x1) / 2 - unit * width, (x0 + x1) / 2 + unit * width, (y0 + y1) / 2 - unit * height, (y0 + y1) / 2 + unit * height]);
  }

  look([x0, x1, y0, y1]) {
    this.figure.x_range.setv({ start: x0, end: x1 });
    this.figure.y_range.setv({ start: y0, end: y1 });
  }

  range() {
    const { x_range: x, y_range: y } = this.figure;
    return [x.start, x.end, y.start, y.end];
  }

  zoom(by) {
    const [x0, x1, y0, y1] = this.range(), w = ((x1 - x0) * by) / 2, h = ((y1 - y0) * by) / 2;
    this.look([(x0 + x1) / 2 - w, (x0 + x1) / 2 + w, (y0 + y1) / 2 - h, (y0 + y1) / 2 + h]);
    this.moving();
  }

  // The point nearest to a place, -1 if none is near.
  near(x, y) {
    const [x0, x1] = this.range();
    const reach = ((x1 - x0) / (this.figure.inner_width || 600)) * NEAR;
    let best = reach * reach, found = -1;
    for (let i = 0; i < this.x.length; i++) {
      const far = (this.x[i] - x) ** 2 + (this.y[i] - y) ** 2;
      if (far < best) [best, found] = [far, i];
    }
    return found < 0 ? -1 : this.index[found];
  }
}

function pick(values, index) {
  const out = new Float32Array(index.length);
  for (let i = 0; i < out.length; i++) out[i] = values[index[i]];
  return out;
}

// Whether points are drawn by the processor: no WebGL, or one that software plays.
function isSlow() {
  const gl = document.createElement("canvas").getContext("webgl");
  if (!gl) return true;
  const info = gl.getExtension("WEBGL_debug_renderer_info");
  const name = String(gl.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : gl.RENDERER));
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return /swiftshader|llvmpipe|software|basic render/i.test(name);
}

// WebGL that software plays is slower than a plain canvas. Bokeh reads which to use when it builds the figures, at the
// same event as this, which was asked for earlier.
const SLOW = isSlow();
document.addEventListener("DOMContentLoaded", () => {
  const figures = document.querySelector("script[type='application/json']");
  if (SLOW) figures.textContent = figures.textContent.replace('"output_backend":"webgl"', '"output_backend":"canvas"');
});
