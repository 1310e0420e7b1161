// A hierarchy: the latents that are listed, in preorder, each an interval of rows. An index i is a place in the list.

const APART = 2 / 3; // of nested concepts those are named that have at most this share of the one above

class Tree {
  constructor(columns, factor) {
    this.factor = factor;
    this.minSize = columns.min_size;
    this.nRows = columns.n_rows;
    this.nLatents = columns.n_latents;
    this.nClusters = columns.n_clusters;
    this.clusterStart = columns.cluster_start;
    this.scores = null;
    this.take(columns);
    const outer = this.children().get(-1) ?? []; // concepts that lie in no other
    this.most = outer.reduce((most, i) => Math.max(most, this.size[i]), 2);
    const first = outer.reduce((least, i) => Math.min(least, this.start[i]), this.nRows);
    const last = outer.reduce((most, i) => Math.max(most, this.end(i)), 0);
    this.span = first < last ? [first, last] : [0, this.nRows];
    const held = outer.reduce((sum, i) => sum + this.size[i], 0);
    this.title = columns.title + (held < 0.99 * this.nRows ? "; rows without one are blank or left out" : "");
  }

  take({ latent, start, size, depth, z, concept }) {
    Object.assign(this, { latent, start, size, depth, z, concept });
    this.length = latent.length;
    const open = [];
    this.upper = new Int32Array(this.length); // the nearest listed one above, -1 for none
    this.upperConcept = new Int32Array(this.length);
    for (let i = 0; i < this.length; i++) {
      while (open.length && this.end(open[open.length - 1]) <= start[i]) open.pop();
      const up = open.length ? open[open.length - 1] : -1;
      this.upper[i] = up;
      this.upperConcept[i] = up < 0 ? -1 : concept[up] ? up : this.upperConcept[up];
      open.push(i);
    }
    this.inside = null;
  }

  // Take in the latents below one of them, finer than those that were there.
  refine(part) {
    const first = part.latent[0], last = part.latent[part.latent.length - 1];
    const kept = [...this.latent.keys()].filter((i) => this.latent[i] < first || this.latent[i] > last);
    const rows = [
      ...kept.map((i) => [this, i]),
      ...Array.from(part.latent.keys(), (i) => [part, i]),
    ].sort(([a, i], [b, j]) => a.latent[i] - b.latent[j]);
    const columns = {};
    for (const name of ["latent", "start", "size", "depth", "z", "concept"]) {
      columns[name] = new this[name].constructor(rows.map(([from, i]) => from[name][i]));
    }
    this.take(columns);
  }

  end(i) {
    return this.start[i] + this.size[i];
  }

  has(i, row) {
    return this.start[i] <= row && row < this.end(i);
  }

  // The listed latent with this number, or the smallest listed one above it; -1 if there is none.
  find(latent) {
    let i = below(this.latent, latent + 1) - 1;
    while (i >= 0 && latent >= this.latent[i] + this.size[i] - 1) i = this.upper[i];
    return i;
  }

  // The smallest concept that has a row.
  holding(row) {
    let i = below(this.start, row + 1) - 1;
    while (i >= 0 && !(this.concept[i] && this.has(i, row))) i = this.upper[i];
    return i;
  }

  cluster(i) {
    return below(this.clusterStart, this.start[i] + 1) - 1;
  }

  // Concepts above, the largest first, without near copies.
  above(i) {
    const path = [];
    for (let up = this.upperConcept[i]; up >= 0; up = this.upperConcept[up]) path.push(up);
    const kept = [];
    for (const up of path.reverse()) {
      if (!kept.length || this.size[up] <= APART * this.size[kept[kept.length - 1]]) kept.push(up);
    }
    return kept;
  }

  // On the way from a concept to a row, the next one that is told from it.
  towards(i, row) {
    let next = -1;
    for (let j = this.holding(row); j >= 0 && j !== i && this.size[j] <= this.size[i]; j = this.upperConcept[j]) {
      if (this.size[j] <= APART * this.size[i]) next = j;
    }
    return next;
  }

  // The largest concepts inside that do not overlap, at most `most`.
  largestInside(i, most) {
    const found = [];
    for (let j = i + 1; j < this.length && this.start[j] < this.end(i); j++) {
      const last = found[found.length - 1];
      if (!this.concept[j] || this.size[j] > APART * this.size[i]) continue;
      if (last === undefined || this.start[j] >= this.end(last)) found.push(j);
    }
    return found.sort((a, b) => this.size[b] - this.size[a]).slice(0, most);
  }

  // The largest latent before or after this one that does not hold it; single points between them are passed over.
  beside(i, step) {
    let row = step > 0 ? this.end(i) : this.start[i] - 1, j = -1;
    for (; row >= 0 && row < this.nRows; row += step) {
      j = this.holding(row);
      if (j < 0 || !this.has(j, this.start[i])) break;
      j = -1;
    }
    while (j >= 0 && this.upperConcept[j] >= 0 && !this.has(this.upperConcept[j], this.start[i])) j = this.upperConcept[j];
    return j;
  }

  // Up to `count` large groups that do not overlap, of all rows or of a latent: the largest that can be parted is parted,
  // until there are enough.
  groups(count, whole) {
    if (!this.inside) this.inside = this.children();
    const least = 0.04 * (whole >= 0 ? this.size[whole] : this.nRows);
    let pieces = whole >= 0 ? [whole] : this.largest(count, least);
    const parted = new Map();
    while (pieces.length < count) {
      pieces.sort((a, b) => this.size[b] - this.size[a]);
      for (const i of pieces) if (!parted.has(i)) parted.set(i, this.parts(i, least));
      const next = pieces.findIndex((i) => parted.get(i).length);
      if (next < 0) break;
      pieces.splice(next, 1, ...parted.get(pieces[next]));
    }
    pieces = pieces.filter((i) => i !== whole).sort((a, b) => this.size[b] - this.size[a]).slice(0, count);
    return pieces.sort((a, b) => this.start[a] - this.start[b]);
  }

  // The concepts that lie in no other, those of at least so many points; of many small ones the largest few.
  largest(count, least) {
    const outer = [...(this.inside.get(-1) ?? [])].sort((a, b) => this.size[b] - this.size[a]);
    const large = outer.filter((i) => this.size[i] >= least);
    return 2 * large.reduce((sum, i) => sum + this.size[i], 0) >= this.nRows ? large : outer.slice(0, count);
  }

  // The first large concepts, two or more, that a latent falls into on the way down; none if half of it is lost before.
  parts(i, least) {
    let now = i;
    while (true) {
      const large = (this.inside.get(now) ?? this.conceptsRightBelow(now)).filter((j) => this.size[j] >= least);
      const kept = large.reduce((sum, j) => sum + this.size[j], 0);
      if (!large.length || kept < this.size[i] / 2) return [];
      if (large.length > 1) return large;
      now = large[0];
    }
  }

  children() {
    const lists = new Map();
    for (let i = 0; i < this.length; i++) {
      if (!this.concept[i]) continue;
      const up = this.upperConcept[i];
      lists.has(up) ? lists.get(up).push(i) : lists.set(up, [i]);
    }
    return lists;
  }

  conceptsRightBelow(i) {
    const found = [];
    for (let j = i + 1; j < this.length && this.start[j] < this.end(i); j++) {
      if (this.concept[j] && (!found.length || this.start[j] >= this.end(found[found.length - 1]))) found.push(j);
    }
    return found;
  }
}

// The number of elements below a value, in increasing order.
function below(values, value) {
  let lo = 0, hi = values.length;
  while (lo < hi) {
    const middle = (lo + hi) >> 1;
    if (values[middle] < value) lo = middle + 1;
    else hi = middle;
  }
  return lo;
}
