// Reads what packing.py wrote: JSON, then arrays at the offsets that the JSON names.

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };

function fromBase64(text) {
  const raw = atob(text.trim());
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function unpack(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(stream).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  return restore(head, buffer, 4 + length);
}

function restore(value, buffer, first) {
  if (Array.isArray(value)) return value.map((item) => restore(item, buffer, first));
  if (value === null || typeof value !== "object") return value;
  const place = value.$ ?? value.$d;
  if (place) {
    const array = new ARRAYS[place[0]](buffer, first + place[1], place[2]);
    return value.$ ? array : summed(array);
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, restore(item, buffer, first)]));
}

function summed(differences) {
  const out = new Int32Array(differences.length);
  let total = 0;
  for (let i = 0; i < out.length; i++) out[i] = total += differences[i];
  return out;
}

// Seven bits a byte, the lowest first; see firing.varints.
function varints(bytes, count) {
  const out = new Int32Array(count);
  let at = 0;
  for (let i = 0; i < count; i++) {
    let value = 0, shift = 0, byte;
    do {
      byte = bytes[at++];
      value |= (byte & 127) << shift;
      shift += 7;
    } while (byte & 128);
    out[i] = value;
  }
  return out;
}
