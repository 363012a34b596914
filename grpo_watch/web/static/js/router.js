// Addresses inside the page: #/, #/run/SLUG (or its name), #/rule/NAME, each with a query.

export function query(values) {
  const kept = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return new URLSearchParams(Object.fromEntries(kept));
}

export function current() {
  const [path, search] = location.hash.replace(/^#/, "").split("?");
  const [, page = "", name = ""] = path.match(/^\/?([^/]*)\/?(.*)$/);
  return { page, name: decode(name), query: new URLSearchParams(search || "") };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Goes to an address; `quiet` replaces the one in the history (a filter that is being typed).
export function go(path, search = query({}), { quiet = false } = {}) {
  const hash = `#${path}${search.size ? `?${search}` : ""}`;
  if (quiet) {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = hash;
  }
}
