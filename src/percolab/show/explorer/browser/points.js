// The points that are drawn: where they are in each hierarchy, their columns, and their principal components.

class Points {
  constructor(data) {
    this.samples = data.samples;
    this.length = data.samples.length;
    this.total = data.total;
    this.places = data.places;
    this.columns = new Map(data.columns.map((column) => [column.name, column]));
    this.order = data.places.map(({ rows }) => argsort(rows)); // by row of each hierarchy
    this.sorted = this.order.map((order, k) => order.map((i) => data.places[k].rows[i]));
    this.planes = data.planes;
  }

  // The points of an interval of rows.
  within(factor, start, end) {
    const sorted = this.sorted[factor];
    return this.order[factor].subarray(below(sorted, start), below(sorted, end));
  }

  // The set of components of a latent or, where it has none of its own, of the nearest latent above that has.
  plane(tree, latent) {
    const { factor, latent: of } = this.planes;
    let found = 0;
    for (let p = 1; latent !== null && p < of.length; p++) {
      if (factor[p] !== tree.factor) continue;
      const i = tree.find(of[p]), inner = tree.find(latent);
      const holds = tree.latent[i] === of[p] && tree.start[i] <= tree.start[inner] && tree.end(inner) <= tree.end(i);
      if (holds && (found === 0 || this.planes.count[p] < this.planes.count[found])) found = p;
    }
    return found;
  }

  // Where the points of a set of components are: three coordinates of each, and which points they are.
  places3(plane, tree) {
    const { first, count, latent, scale, values } = this.planes;
    const n = count[plane], at = 3 * first[plane];
    const axes = [0, 1, 2].map((a) => {
      const low = scale[9 * plane + a], step = scale[9 * plane + 3 + a];
      const out = new Float32Array(n);
      for (let i = 0; i < n; i++) out[i] = low + step * values[at + a * n + i];
      return out;
    });
    const share = scale.subarray(9 * plane + 6, 9 * plane + 9);
    if (n === this.length) return { axes, share, index: upTo(n) };
    const i = tree.find(latent[plane]);
    return { axes, share, index: this.within(tree.factor, tree.start[i], tree.end(i)).slice().sort() };
  }
}

function upTo(n) {
  const out = new Int32Array(n);
  for (let i = 0; i < n; i++) out[i] = i;
  return out;
}

function argsort(values) {
  const order = upTo(values.length);
  for (let i = 1; i < values.length; i++) if (values[i] < values[i - 1]) return order.sort((a, b) => values[a] - values[b]);
  return order;
}

// Two coordinates of three: a pair of components, or all three seen from a side.
function project(axes, which, turn) {
  if (which !== "123") return [axes[which[0] - 1], axes[which[1] - 1]];
  const angle = (turn * Math.PI) / 180, tilt = 0.45;
  const [c, s, ct, st] = [Math.cos(angle), Math.sin(angle), Math.cos(tilt), Math.sin(tilt)];
  const [a, b, d] = axes;
  const x = new Float32Array(a.length), y = new Float32Array(a.length);
  for (let i = 0; i < a.length; i++) {
    x[i] = c * a[i] + s * d[i];
    y[i] = ct * b[i] + st * (s * a[i] - c * d[i]);
  }
  return [x, y];
}

function mean(values, index) {
  let total = 0;
  for (const i of index) total += values[i];
  return index.length ? total / index.length : NaN;
}
