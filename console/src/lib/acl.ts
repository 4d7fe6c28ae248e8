// Owns the rules of a database's users: from ACL LIST to parts, from parts to ACL SETUSER, and what they mean in words. Pure.

export interface AclUser {
  name: string;
  on: boolean;
  nopass: boolean;
  /** How many passwords there are; the node keeps only their hashes. */
  passwords: number;
  /** ~pattern, %R~pattern, %W~pattern */
  keys: string[];
  /** &pattern */
  channels: string[];
  /** In their order, which counts: later ones overrule earlier ones. */
  commands: string[];
  /** Further sets of rules, each in parentheses. */
  selectors: string[];
}

/** A line of ACL LIST. */
export function parseUser(line: string): AclUser | null {
  const selectors = line.match(/\([^)]*\)/g) ?? [];
  const [word, name, ...rules] = line.replace(/\([^)]*\)/g, " ").trim().split(/\s+/);
  if (word !== "user" || name === undefined) return null;
  const user: AclUser = { name, on: false, nopass: false, passwords: 0, keys: [], channels: [], commands: [], selectors };
  for (const rule of rules) {
    if (rule === "on" || rule === "off") user.on = rule === "on";
    else if (rule === "nopass") user.nopass = true;
    else if (rule.startsWith("#")) user.passwords += 1;
    else if (/^(~|%)/.test(rule)) user.keys.push(rule);
    else if (rule.startsWith("&")) user.channels.push(rule);
    else if (/^[+-]/.test(rule)) user.commands.push(rule);
  }
  return user;
}

const list = (words: string[]): string => (words.length < 2 ? (words[0] ?? "") : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`);

const SETS: Record<string, string> = {
  "@all": "all commands", "@read": "commands that read", "@write": "commands that write", "@admin": "commands for administrators",
  "@dangerous": "dangerous commands", "@fast": "fast commands", "@slow": "slow commands", "@blocking": "commands that block",
  "@connection": "commands about the connection", "@pubsub": "commands of channels", "@scripting": "scripts", "@transaction": "transactions", "@keyspace": "commands on any type of key",
};
const commandWord = (rule: string): string => {
  const name = rule.slice(1);
  if (!name.startsWith("@")) return name.replace("|", " ").toUpperCase();
  return SETS[name] ?? `commands of ${name.slice(1)}`;
};

/** What the rules mean, a sentence each. */
export function explain(user: AclUser): string[] {
  const said: string[] = [];
  if (!user.on) said.push("Cannot log in: the user is off.");
  else if (user.nopass) said.push("Logs in with any password.");
  else if (user.passwords === 0) said.push("Cannot log in: there is no password.");
  else said.push(user.passwords === 1 ? "Logs in with its password." : `Logs in with any of ${user.passwords} passwords.`);
  const read = (rule: string): string => (rule.startsWith("%") ? `${rule.slice(rule.indexOf("~") + 1)} (only ${/^%[^~]*r/i.test(rule) && !/^%[^~]*w/i.test(rule) ? "to read" : /^%[^~]*w/i.test(rule) && !/^%[^~]*r/i.test(rule) ? "to write" : "to read and write"})` : rule.slice(1));
  if (user.keys.length === 0) said.push("Sees no key.");
  else if (user.keys.includes("~*")) said.push("Sees every key.");
  else said.push(`Sees the keys ${list(user.keys.map(read))}.`);
  if (user.channels.length === 0) said.push("Uses no channel.");
  else if (user.channels.includes("&*")) said.push("Uses every channel.");
  else said.push(`Uses the channels ${list(user.channels.map((rule) => rule.slice(1)))}.`);
  const rules = user.commands;
  // Everything before the last rule about all commands has no effect.
  const from = Math.max(rules.lastIndexOf("+@all"), rules.lastIndexOf("-@all"));
  const all = from >= 0 && rules[from] === "+@all";
  const rest = rules.slice(from + 1);
  const more = rest.filter((rule) => rule.startsWith("+")).map(commandWord);
  const less = rest.filter((rule) => rule.startsWith("-")).map(commandWord);
  if (all) said.push(less.length > 0 ? `Runs all commands but ${list(less)}${more.length > 0 ? `, with ${list(more)}` : ""}.` : "Runs all commands.");
  else if (more.length === 0) said.push("Runs no command.");
  else said.push(`Runs ${list(more)}${less.length > 0 ? `, without ${list(less)}` : ""}.`);
  if (user.selectors.length > 0) said.push(user.selectors.length === 1 ? `Or, as another set of rules: ${user.selectors[0]}.` : `Or one of ${user.selectors.length} other sets of rules: ${user.selectors.join(" ")}.`);
  return said;
}

const words = (text: string): string[] => text.split(/\s+/).filter(Boolean);

export interface AclForm {
  on: boolean;
  /** Empty: the passwords stay. */
  password: string;
  keys: string;
  channels: string;
  commands: string;
}

/** A pattern without a sign is one of keys, or of channels. */
const signed = (sign: "~" | "&") => (word: string): string => (word.startsWith(sign) || (sign === "~" && word.startsWith("%")) ? word : sign + word);

/** The rules of a form, in the order in which ACL SETUSER takes them. They replace what the user had, but for other sets of rules. */
export function rulesOf(form: AclForm): string[] {
  const commands = words(form.commands).map((word) => (/^[+-]/.test(word) ? word : `+${word}`));
  return [
    form.on ? "on" : "off", "resetkeys", ...words(form.keys).map(signed("~")), "resetchannels", ...words(form.channels).map(signed("&")),
    "-@all", ...commands, ...(form.password ? ["resetpass", `>${form.password}`] : []),
  ];
}

/** The form as a user, to be explained while it is filled in. */
export function previewed(form: AclForm, before: AclUser | null): AclUser {
  const user: AclUser = { name: "", on: form.on, nopass: false, passwords: 0, keys: [], channels: [], commands: [], selectors: before?.selectors ?? [] };
  user.passwords = form.password ? 1 : (before?.passwords ?? 0);
  user.nopass = !form.password && (before?.nopass ?? false);
  for (const rule of rulesOf({ ...form, password: "" })) {
    if (/^(~|%)/.test(rule)) user.keys.push(rule);
    else if (rule.startsWith("&")) user.channels.push(rule);
    else if (/^[+-]/.test(rule)) user.commands.push(rule);
  }
  return user;
}

export const PRESETS: { label: string; commands: string }[] = [
  { label: "only read", commands: "+@read +@connection -@dangerous" },
  { label: "read and write", commands: "+@read +@write +@connection +@transaction +@scripting -@dangerous" },
  { label: "everything but administration", commands: "+@all -@admin -@dangerous" },
  { label: "everything", commands: "+@all" },
];
