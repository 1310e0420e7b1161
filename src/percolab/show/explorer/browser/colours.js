// Scales of the colours of figures, which come before this: all eyes can tell them apart, on light and on dark.

const GROUPS = [BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION];
const SHAPES = { hits: "●", missed: "✕", absorbed: "▲", added: "◆" };
const OUTCOMES = [["recovered by one feature", BLUE], ["by several together", SKY], ["not recovered", VERMILION]];
const RECOVERED = 0.8;

const SIGNED = ramp([BLUE, MIDDLE, VERMILION]);
const RISING = ramp([MIDDLE, ORANGE, VERMILION]);
// The middle of viridis: its ends are too dark or too faint for one of the grounds.
const STEADY = ramp(["#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39"]);

function ramp(stops) {
  const numbers = stops.map((stop) => [1, 3, 5].map((i) => parseInt(stop.slice(i, i + 2), 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2), part = at - low;
    const mixed = numbers[low].map((v, c) => Math.round(v + part * (numbers[low + 1][c] - v)));
    return "#" + mixed.map((v) => v.toString(16).padStart(2, "0")).join("");
  });
}

// A scale that shows values as numbers: signed around 0, or rising from the least. The rarest two in a hundred saturate.
function numberScale(values, kind) {
  const step = Math.max(1, Math.floor(values.length / 4000)), some = [];
  for (let i = 0; i < values.length; i += step) if (Number.isFinite(values[i])) some.push(values[i]);
  some.sort((a, b) => a - b);
  const low = some[Math.floor(0.01 * some.length)] ?? 0, high = some[Math.ceil(0.99 * some.length) - 1] ?? 1;
  if (kind === "signed") {
    const reach = Math.max(-low, high) || 1;
    return { palette: SIGNED, low: -reach, high: reach };
  }
  if (kind === "rising") return { palette: RISING, low: 0, high: some[some.length - 1] || 1 };
  if (kind === "share") return { palette: RISING, low: 0, high: 1 };
  return { palette: STEADY, low, high: high > low ? high : low + 1 };
}

// A scale of a few kinds, each with a name; values are their numbers, and NaN is grey, which may have a name too.
function kindScale(kinds, rest = null) {
  const palette = kinds.length ? kinds.map(([, colour]) => colour) : [MIDDLE];
  return { palette, low: -0.5, high: palette.length - 0.5, kinds: rest ? [...kinds, [rest, "var(--rest)"]] : kinds };
}
