// A hierarchy as an icicle: a rectangle a concept, its rows across, its number of points up, the smaller ones over it.

const THIN = 1.2; // pixels that a rectangle must be wide to be drawn
const FLAT = 3; // pixels by which it must be lower than the one it lies in
const CLOSE = 3000; // rows in view from which on all latents with a value are drawn, not only concepts
const BINS = 240; // of the strip under the tree
const STRIP = 0.16; // of the height

class Icicle {
  constructor(document, tree) {
    this.tree = tree;
    this.figure = document.get_model_by_name(`tree${tree.factor}`);
    this.model = (name) => document.get_model_by_name(name.replace("#", tree.factor));
    this.drawn = [];
    this.value = () => NaN;
    this.kinds = null;
    this.chosen = -1;
  }

  // Show rows from … to; the height follows, so that what fits across is in view.
  look(from, to) {
    const n = this.tree.nRows, width = Math.min(Math.max(to - from, 8), 1.04 * n);
    const first = Math.min(Math.max(from, -0.02 * n), 1.02 * n - width);
    this.figure.x_range.setv({ start: first, end: first + width });
    this.draw();
  }

  range() {
    return [this.figure.x_range.start, this.figure.x_range.end];
  }

  // The rows that have concepts.
  all() {
    const [first, last] = this.tree.span, edge = 0.02 * (last - first);
    return [first - edge, last + edge];
  }

  zoom(by) {
    const [from, to] = this.range(), middle = (from + to) / 2, half = ((to - from) * by) / 2;
    this.look(middle - half, middle + half);
  }

  // Bring a latent into view if it is outside or too narrow to be seen.
  reveal(i) {
    const [from, to] = this.range(), { start, size } = this.tree, end = this.tree.end(i);
    const wide = (size[i] / (to - from)) * (this.figure.inner_width || 500);
    if (wide < 10 || start[i] >= to || end <= from) this.look(start[i] - 2 * size[i], end + 2 * size[i]);
  }

  draw() {
    const [from, to] = this.range(), { tree } = this;
    const width = this.figure.inner_width || 500, height = this.figure.inner_height || 240;
    const least = Math.max(2, ((to - from) / width) * THIN);
    const low = Math.max(1, least / 1.5), high = Math.max(Math.min(tree.most, 3 * (to - from)) * 1.15, 3 * low);
    const strip = this.kinds ? STRIP : 0;
    const room = Math.log(high / low), foot = low * Math.exp((-room * strip) / (1 - strip));
    const step = (room / (height * (1 - strip))) * FLAT;
    this.figure.y_range.setv({ start: foot, end: high });
    this.drawn = this.visible(from, to, least, step);
    const columns = { left: [], right: [], top: [], bottom: [], value: [] };
    for (const i of this.drawn) {
      columns.left.push(tree.start[i]);
      columns.right.push(tree.end(i));
      columns.top.push(tree.size[i]);
      columns.bottom.push(low);
      columns.value.push(this.value(i));
    }
    this.model("rectangles#").data = columns;
    this.outline(low);
    this.strip(from, to, foot, low);
  }

  // Listed latents that can be seen: in view, wide enough, and lower than the one drawn around them.
  visible(from, to, least, step) {
    const { tree } = this, close = to - from <= CLOSE, open = [], found = [];
    for (let i = 0; i < tree.length; i++) {
      const end = tree.end(i);
      if (tree.size[i] < least || end <= from || tree.start[i] >= to) continue;
      if (!tree.concept[i] && (!close || Number.isNaN(this.value(i)))) continue;
      while (open.length && tree.end(open[open.length - 1]) <= tree.start[i]) open.pop();
      const around = open[open.length - 1];
      if (around !== undefined && Math.log(tree.size[around] / tree.size[i]) < step) continue;
      open.push(i);
      found.push(i);
    }
    return found;
  }

  colour(value, scale) {
    this.value = value;
    this.model("colours#").setv({ palette: scale.palette, low: scale.low, high: scale.high });
  }

  outline(low) {
    const i = this.chosen, { tree } = this;
    const some = i < 0 ? [] : [i];
    this.model("chosen#").data = {
      left: some.map((j) => tree.start[j]), right: some.map((j) => tree.end(j)),
      top: some.map((j) => tree.size[j]), bottom: some.map(() => low),
    };
  }

  // Under the tree, a line for each kind of point that a feature makes: how many of the rows in a bin.
  strip(from, to, foot, low) {
    const columns = { left: [], right: [], top: [], bottom: [], colour: [], alpha: [] };
    const room = Math.log(low / foot), bin = (to - from) / BINS;
    Object.entries(this.kinds ?? {}).forEach(([kind, rows], line) => {
      const count = new Uint32Array(BINS);
      for (const row of rows) if (row >= from && row < to) count[Math.floor((row - from) / bin)]++;
      const most = Math.max(1, ...count);
      count.forEach((number, b) => {
        if (!number) return;
        columns.left.push(from + b * bin);
        columns.right.push(from + (b + 1) * bin);
        columns.top.push(low * Math.exp(-room * (0.1 + 0.22 * line)));
        columns.bottom.push(low * Math.exp(-room * (0.28 + 0.22 * line)));
        columns.colour.push(MARKS[kind]);
        columns.alpha.push(0.3 + (0.7 * number) / most);
      });
    });
    this.model("strip#").data = columns;
  }

  // The smallest latent drawn at a place.
  at(row, size) {
    let found = -1;
    for (const i of this.drawn) if (this.tree.has(i, row) && this.tree.size[i] >= size) found = i;
    return found;
  }
}
