// Owns the console's words for what the node calls by its directives, so that a form's errors name its fields. Pure.

const WORDS: [RegExp, string][] = [
  [/\b(raise|lower) (?=(?:ram|memory|flash)-limit\b)/g, "$1 the "],
  [/\bset appendonly no\b/g, "set the persistence to none"],
  [/\blower io-threads\b/g, "let the node have fewer workers"],
  [/\bio-threads\b/g, "workers"],
  [/\bmemory-limit\b/g, "memory limit"],
  [/\bram-limit\b/g, "RAM limit"],
  [/\bflash-limit\b/g, "flash limit"],
  [/\bmaxmemory-policy\b/g, "eviction policy"],
  [/\bflash-compression\b/g, "compression"],
  [/\brecovery-time-target\b/g, "restart target"],
  [/\bbackup-journal-keep\b/g, "archive of the journal"],
  [/\btls-port\b/g, "TLS port"],
];
// redis.conf's exact sizes, as the console shows sizes.
const SIZE = /\b(\d+)(kb|mb|gb)\b/g;
const SHOWN: Record<string, string> = { kb: "KiB", mb: "MiB", gb: "GiB" };

export function inWords(text: string): string {
  const named = WORDS.reduce((said, [name, word]) => said.replace(name, word), text);
  return named.replace(SIZE, (_, number: string, unit: string) => `${number} ${SHOWN[unit]!}`);
}
