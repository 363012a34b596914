// Asks the daemon; the answer of an older question never overtakes that of a newer one.
import { setClock } from "./format.js";

// What is received, null where it is still what `tag` names, and its own tag.
async function asked(path, tag) {
  const headers = { Accept: "application/json", ...(tag && { "If-None-Match": tag }) };
  const answer = await fetch(`api/v1/${path}`, { headers });
  setClock(Date.parse(answer.headers.get("date")) / 1000);
  if (answer.status === 304) return { received: null, tag };
  const received = await answer.json().catch(() => ({}));
  if (answer.ok) return { received, tag: answer.headers.get("etag") };
  const words = answer.status === 401 ? "open the link that it printed at its start" : `it answers ${answer.status}`;
  throw Object.assign(new Error(received.error || words), { status: answer.status });
}

export const ask = async (path) => (await asked(path)).received;

// A question that is asked again and again; `take` gets an answer only where it differs from the one before. It is
// never asked twice at once: what changes meanwhile is asked for afterwards. `now` says whether the daemon answered.
export function asking(path, take, failed) {
  let busy = false;
  let again = false;
  let over = false;
  let known = {};
  async function now() {
    if (busy) {
      again = true;
      return true;
    }
    busy = true;
    let answered = true;
    try {
      const place = path();
      const { received, tag } = await asked(place, known.place === place ? known.tag : null);
      known = { place, tag };
      if (!over && received) take(received);
    } catch (problem) {
      known = {};
      answered = problem.status !== undefined;
      if (!over) failed(problem);
    } finally {
      busy = false;
      if (again && !over) {
        again = false;
        now();
      }
    }
    return answered;
  }
  return { now, stop: () => (over = true) };
}
