// The state of the page, and the address that restores it. Moves through the picture replace the address; picks add one,
// so that back and forward go from pick to pick; colours replace it too.

const START = { factor: 0, latent: null, row: null, feature: null, view: null, axes: "12", turn: 20, colour: "latent", tree: "latent", space: null, rows: null };
const NUMBERS = ["factor", "latent", "row", "feature", "turn"];
const LISTS = ["space", "rows"];
const SETTLED = 400; // milliseconds without a move after which the address is written

function toAddress(state) {
  const parts = [];
  for (const [name, value] of Object.entries(state)) {
    if (!(name in START) || value === null || value === START[name]) continue;
    parts.push(`${name}=${encodeURIComponent(LISTS.includes(name) ? value.map((v) => Number(v.toPrecision(5))).join(",") : value)}`);
  }
  return "#" + parts.join("&");
}

function fromAddress(address) {
  const state = { ...START };
  for (const part of address.replace(/^#/, "").split("&")) {
    const [name, raw] = part.split("=");
    if (!(name in START) || raw === undefined) continue;
    let value;
    try {
      value = decodeURIComponent(raw);
    } catch {
      continue;
    }
    if (NUMBERS.includes(name)) {
      if (/^\d{1,15}$/.test(value)) state[name] = Number(value);
    } else if (LISTS.includes(name)) {
      const list = value.split(",").map(Number);
      if (list.length === (name === "space" ? 4 : 2) && list.every(Number.isFinite)) state[name] = list;
    } else if (/^[\w:]{1,40}$/.test(value)) state[name] = value;
  }
  return state;
}

// Some frames, such as a notebook's, refuse addresses; the page works there without a link.
function writeAddress(state, adds) {
  try {
    adds ? history.pushState(null, "", toAddress(state)) : history.replaceState(null, "", toAddress(state));
  } catch (refused) {
    console.debug("no address here", refused);
  }
}
