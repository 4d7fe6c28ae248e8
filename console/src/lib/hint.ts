// Owns which hints of the API are for the people at the pages. Pure.

/** Words of programs: methods with paths, headers, bodies, parameters. */
const OF_PROGRAMS = /\b(GET|POST|PUT|PATCH|DELETE) (\/|the )|\/api\/v1|Authorization:|Content-Type|X-CSRF|key64=|console-metrics-open|^send |\{"/;

/** A hint of the API up to where it turns to programs. */
export function forPeople(hint: string): string {
  const at = hint.search(OF_PROGRAMS);
  if (at < 0) return hint;
  const before = hint.slice(0, at);
  return before.slice(0, Math.max(before.lastIndexOf(": "), before.lastIndexOf("; "), 0));
}
