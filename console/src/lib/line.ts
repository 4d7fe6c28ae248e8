// Owns parsing a command line by redis-cli's rules: words, quotes, escapes. Pure.

export interface Word {
  text: string;
  from: number;
  to: number;
}

/** The words of a line; null if a quote is not closed. */
export function words(line: string): Word[] | null {
  const found: Word[] = [];
  let at = 0;
  while (at < line.length) {
    if (/\s/.test(line[at]!)) {
      at += 1;
      continue;
    }
    const from = at;
    let text = "";
    while (at < line.length && !/\s/.test(line[at]!)) {
      const quote = line[at]!;
      if (quote === '"' || quote === "'") {
        const end = closing(line, at);
        if (end < 0) return null;
        text += line.slice(at + 1, end);
        at = end + 1;
      } else {
        text += quote;
        at += 1;
      }
    }
    found.push({ text, from, to: at });
  }
  return found;
}

function closing(line: string, open: number): number {
  for (let at = open + 1; at < line.length; at += 1) {
    if (line[at] === "\\") at += 1;
    else if (line[at] === line[open]) return at;
  }
  return -1;
}

/** The command at the start of a line, with its subcommand if the catalog has it: "config get max" → "config get". */
export function commandOf(line: string, known: ReadonlySet<string>): string | null {
  const [first, second] = line.trimStart().toLowerCase().split(/\s+/);
  if (!first) return null;
  if (second && known.has(`${first} ${second}`)) return `${first} ${second}`;
  return known.has(first) ? first : null;
}

/** The names that start with the typed text, shortest first. */
export function completions(line: string, names: readonly string[], limit = 12): string[] {
  const typed = line.trimStart().toLowerCase().replace(/\s+/g, " ");
  if (typed === "") return [];
  return names
    .filter((name) => name.startsWith(typed) && name !== typed)
    .toSorted((a, b) => a.length - b.length || (a < b ? -1 : 1))
    .slice(0, limit);
}

/** The commands of a text: a line each, without the empty ones. */
export function commandsOf(text: string): string[] {
  return text.split(/\r?\n/).map((line) => line.trim()).filter((line) => line !== "");
}

/** The line of a text that the cursor is in. */
export function lineAt(text: string, cursor: number): { from: number; to: number; text: string } {
  const from = text.lastIndexOf("\n", cursor - 1) + 1;
  const end = text.indexOf("\n", cursor);
  const to = end < 0 ? text.length : end;
  return { from, to, text: text.slice(from, to) };
}

/** The history with the line added: no empty lines, no immediate repetitions, at most `most` lines. */
export function remembered(history: readonly string[], line: string, most = 200): string[] {
  if (line.trim() === "" || history.at(-1) === line) return [...history];
  return [...history, line].slice(-most);
}

/** Commands with secrets stay out of the history. */
export function isSecret(line: string): boolean {
  return /^\s*(auth|hello\b.*\bauth|acl\s+setuser|config\s+set\b.*(pass|auth))\b/i.test(line) || /\brequirepass\b|\bmasterauth\b/i.test(line);
}
