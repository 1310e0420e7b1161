// One tooltip beside the pointer, of two lines: the innermost concept, or the point, that is there.

const BESIDE = 14; // pixels from the pointer

class Tips {
  constructor(app) {
    this.box = document.getElementById("tip");
    const places = document.querySelectorAll(".figure");
    this.listen(places[0], app.space.figure, (x, y) => this.ofPoint(app, app.space.near(x, y)));
    app.icicles.forEach((icicle, k) => this.listen(places[k + 1], icicle.figure, (x, y) => this.ofLatent(icicle, icicle.at(Math.floor(x), y))));
  }

  listen(place, figure, words) {
    place.addEventListener("pointermove", (event) => {
      const [x, y] = dataAt(figure, event);
      const lines = event.pointerType === "touch" || event.buttons ? null : words(x, y);
      this.box.hidden = !lines;
      if (!lines) return;
      this.box.replaceChildren(element("b", {}, lines[0]), element("br"), lines[1]);
      const { offsetWidth: width, offsetHeight: height } = this.box;
      this.box.style.left = `${event.clientX + BESIDE + width > innerWidth ? event.clientX - BESIDE - width : event.clientX + BESIDE}px`;
      this.box.style.top = `${Math.max(2, Math.min(event.clientY + BESIDE, innerHeight - height - 2))}px`;
    });
    place.addEventListener("pointerleave", () => (this.box.hidden = true));
  }

  ofPoint(app, p) {
    if (p < 0) return null;
    const { factor } = app.state, tree = app.trees[factor], i = tree.holding(app.points.places[factor].rows[p]);
    const values = Array.from(app.points.columns.values(), ({ name, values }) => `${name} ${decimal(values[p], 2)}`);
    return [`row ${number(app.points.samples[p])}`, `${i < 0 ? "" : `in latent ${number(tree.latent[i])}, `}${values.join(", ")}`];
  }

  ofLatent({ tree }, i) {
    return i < 0 ? null : [`latent ${number(tree.latent[i])}: ${number(tree.size[i])} points`, `z ${decimal(tree.z[i], 2)}, depth ${number(tree.depth[i])}`];
  }
}

// The coordinates of a figure under the pointer.
function dataAt(figure, event) {
  const view = Bokeh.index.get_by_id(figure.id), box = view.el.getBoundingClientRect();
  return [view.frame.x_scale.invert(event.clientX - box.left), view.frame.y_scale.invert(event.clientY - box.top)];
}
