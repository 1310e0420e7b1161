// Features: on which of the points drawn each fires, and how that compares with the points of a latent.

const OWN = 0.5; // F1 from which a feature counts as a latent's own

class Features {
  constructor(data, points) {
    this.name = data.name;
    this.total = data.total;
    this.shown = data.shown; // those that match best come first
    this.fired = data.fired;
    this.rows = data.rows;
    this.points = points;
    this.place = new Map(Array.from(data.shown, (feature, i) => [feature, i]));
    this.first = new Int32Array(data.count.length + 1);
    data.count.forEach((count, i) => (this.first[i + 1] = this.first[i] + count));
    this.where = varints(data.gaps, this.first[data.count.length]);
    for (let f = 0; f < data.count.length; f++) {
      for (let j = this.first[f] + 1; j < this.first[f + 1]; j++) this.where[j] += this.where[j - 1];
    }
    this.levels = data.levels;
    this.top = data.top;
  }

  // The points on which a feature fires; none where it is not on the page.
  firing(feature) {
    const p = this.place.get(feature);
    return p === undefined ? new Int32Array(0) : this.where.subarray(this.first[p], this.first[p + 1]);
  }

  activation(feature) {
    const values = new Float32Array(this.points.length), p = this.place.get(feature);
    if (p === undefined) return values;
    for (let j = this.first[p]; j < this.first[p + 1]; j++) values[this.where[j]] = (this.levels[j] / 255) * this.top[p];
    return values;
  }

  fires(feature) {
    const mask = new Uint8Array(this.points.length);
    for (const i of this.firing(feature)) mask[i] = 1;
    return mask;
  }

  // What a feature does against a latent: points it hits and misses, those missed that are absorbed, and those it adds.
  // A point is absorbed where another feature that belongs to a concept inside, at most half as large, fires. As in the
  // judge's score, this is asked where F1 is at least 0.5: of a feature that is not the latent's own, silence says nothing.
  compare(feature, factor, latent, start, end) {
    const mask = this.fires(feature), { rows, absorbed } = this.points.places[factor];
    const kinds = { hits: [], missed: [], absorbed: [], added: [] }, members = this.points.within(factor, start, end);
    for (const i of this.firing(feature)) kinds[rows[i] < start || rows[i] >= end ? "added" : "hits"].push(i);
    const own = (2 * kinds.hits.length) / (members.length + kinds.hits.length + kinds.added.length) >= OWN;
    for (const i of members) if (!mask[i]) kinds[own && absorbed[i] >= latent ? "absorbed" : "missed"].push(i);
    return kinds;
  }

  // The features with the best F1 for a set of points, among those drawn.
  best(members, most) {
    const mask = new Uint8Array(this.points.length), found = [];
    for (const i of members) mask[i] = 1;
    for (let f = 0; f < this.shown.length; f++) {
      let hits = 0;
      for (let j = this.first[f]; j < this.first[f + 1]; j++) hits += mask[this.where[j]];
      const fired = this.first[f + 1] - this.first[f];
      if (hits) found.push({ feature: this.shown[f], f1: (2 * hits) / (fired + members.length), recall: hits / members.length, precision: hits / fired });
    }
    return found.sort((a, b) => b.f1 - a.f1 || a.feature - b.feature).slice(0, most);
  }
}
