//! Owns what COMMAND DOCS says of a command's arguments: the tree that its row's syntax describes. Never says anything
//! that is not in the syntax.
//!
//! The notation is that of Redis's documentation. Lower-case words are values, other words are tokens. `[ ]` encloses
//! optional arguments, `< >` encloses arguments that belong together, and `|` separates alternatives. `...` at the end
//! of brackets means that the bracketed arguments, or the arguments before the brackets, may be repeated.

use crate::row::{Flag, Group, Keys, Row};
use resp::reply::Out;

/// An argument in Redis's terms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arg {
    pub name: String,
    pub kind: Kind,
    pub token: Option<&'static str>,
    pub key_spec: Option<usize>,
    pub is_optional: bool,
    pub is_multiple: bool,
    /// The token is repeated with each value.
    pub is_multiple_token: bool,
    pub arguments: Vec<Arg>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    String,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Double => "double",
            Kind::Key => "key",
            Kind::Pattern => "pattern",
            Kind::UnixTime => "unix-time",
            Kind::PureToken => "pure-token",
            Kind::OneOf => "oneof",
            Kind::Block => "block",
        }
    }
}

/// The arguments of a command. `key_specs`: the numbers of the specifications of its keys.
pub fn arguments(row: &'static Row, key_specs: &[usize]) -> Vec<Arg> {
    let items = Reader { rest: row.syntax }.alternatives().pop().unwrap_or_default();
    let mut args = sequence(row, &items);
    let mut keys = 0;
    number_keys(&mut args, &mut keys, key_specs);
    args
}

/// Numbers the keys in the order of the specifications. The last specification covers all remaining keys.
fn number_keys(args: &mut [Arg], keys: &mut usize, key_specs: &[usize]) {
    for arg in args {
        if arg.kind == Kind::Key {
            arg.key_spec = key_specs.get(*keys).or(key_specs.last()).copied();
            *keys += 1;
        }
        number_keys(&mut arg.arguments, keys, key_specs);
    }
}

pub fn write(out: &mut Out<'_>, args: &[Arg]) {
    out.array(args.len());
    for arg in args {
        let has_parts = matches!(arg.kind, Kind::OneOf | Kind::Block);
        let flags =
            [(arg.is_optional, "optional"), (arg.is_multiple, "multiple"), (arg.is_multiple_token, "multiple_token")];
        let flags = flags.iter().filter(|(on, _)| *on);
        let count = flags.clone().count();
        // The fields of an argument: its name and type, its display text or its parts, and the optional fields.
        out.map(3 + usize::from(arg.key_spec.is_some()) + usize::from(arg.token.is_some()) + usize::from(count > 0));
        out.bulk(b"name");
        out.bulk(arg.name.as_bytes());
        out.bulk(b"type");
        out.bulk(arg.kind.name().as_bytes());
        if !has_parts {
            out.bulk(b"display_text");
            out.bulk(arg.name.as_bytes());
        }
        if let Some(spec) = arg.key_spec {
            out.bulk(b"key_spec_index");
            out.int(spec as i64);
        }
        if let Some(token) = arg.token {
            out.bulk(b"token");
            out.bulk(token.as_bytes());
        }
        if count > 0 {
            out.bulk(b"flags");
            out.set(count);
            flags.for_each(|(_, flag)| out.simple(flag));
        }
        if has_parts {
            out.bulk(b"arguments");
            write(out, &arg.arguments);
        }
    }
}

// --- the syntax ---

#[derive(Clone, Debug, PartialEq)]
enum Item {
    Word(&'static str),
    /// `[ ]`
    Optional(Vec<Vec<Item>>),
    /// `< >`
    Group(Vec<Vec<Item>>),
    Dots,
}

struct Reader {
    rest: &'static str,
}

impl Reader {
    /// Reads up to the closing bracket, or to the end.
    fn alternatives(&mut self) -> Vec<Vec<Item>> {
        let mut all = vec![Vec::new()];
        loop {
            self.rest = self.rest.trim_start();
            let Some(first) = self.rest.chars().next() else { return all };
            let item = match first {
                '[' => Item::Optional(self.inside()),
                '<' => Item::Group(self.inside()),
                ']' | '>' => {
                    self.rest = &self.rest[1..];
                    return all;
                }
                '|' => {
                    self.rest = &self.rest[1..];
                    all.push(Vec::new());
                    continue;
                }
                _ => {
                    let end = self.rest.find([' ', '[', ']', '<', '>', '|']).unwrap_or(self.rest.len());
                    let (word, rest) = self.rest.split_at(end);
                    self.rest = rest;
                    if word == "..." { Item::Dots } else { Item::Word(word) }
                }
            };
            all.last_mut().expect("there is one at least").push(item);
        }
    }

    fn inside(&mut self) -> Vec<Vec<Item>> {
        self.rest = &self.rest[1..];
        self.alternatives()
    }
}

fn is_token(word: &str) -> bool {
    !word.starts_with(|first: char| first.is_ascii_lowercase())
}

/// The items to repeat, if the brackets repeat what stands before them.
fn repetition<'i>(item: &'i Item, before: &[Item]) -> Option<&'i [Item]> {
    let Item::Optional(alternatives) = item else { return None };
    let [only] = &alternatives[..] else { return None };
    let (Item::Dots, again) = only.split_last()? else { return None };
    before.ends_with(again).then_some(again)
}

// --- its arguments ---

fn sequence(row: &Row, items: &[Item]) -> Vec<Arg> {
    let mut args: Vec<Arg> = Vec::new();
    let mut at = 0;
    while let Some(item) = items.get(at) {
        at += 1;
        if let Some(again) = repetition(item, &items[..at - 1]) {
            repeat(&mut args, again);
            continue;
        }
        match item {
            Item::Dots => {
                if let Some(last) = args.last_mut() {
                    last.is_multiple = true;
                }
            }
            Item::Optional(alternatives) => {
                let mut arg = one_of(row, alternatives);
                arg.is_optional = true;
                args.push(arg);
            }
            Item::Group(alternatives) => args.push(one_of(row, alternatives)),
            Item::Word(word) if is_token(word) => {
                // The following values belong to the token, or to the choice in its place.
                let values = values_behind(items, at);
                let mut arg = match (&items[at..values], items.get(values)) {
                    ([], Some(Item::Group(alternatives))) => {
                        at += 1;
                        one_of(row, alternatives)
                    }
                    ([], _) => Arg { kind: Kind::PureToken, ..Arg::default() },
                    (own, _) => block(sequence(row, own)),
                };
                at = at.max(values);
                arg.token = Some(word);
                if arg.arguments.len() > 1 || arg.name.is_empty() {
                    arg.name = word.to_ascii_lowercase();
                }
                args.push(arg);
            }
            Item::Word(word) => {
                args.push(Arg { name: (*word).to_owned(), kind: kind(row, word), ..Arg::default() });
            }
        }
    }
    args
}

/// The end of the values that start at `at`, each with its repetition.
fn values_behind(items: &[Item], mut at: usize) -> usize {
    let from = at;
    while let Some(item) = items.get(at) {
        match item {
            Item::Word(word) if !is_token(word) => {}
            item if repetition(item, &items[from..at]).is_some() => {}
            _ => break,
        }
        at += 1;
    }
    at
}

/// Marks the last arguments, which `again` names, as repeatable.
fn repeat(args: &mut Vec<Arg>, again: &[Item]) {
    let has_token = matches!(again.first(), Some(Item::Word(word)) if is_token(word));
    if again.len() > 1 && !has_token {
        let parts = args.split_off(args.len() - again.len());
        args.push(Arg { name: "data".to_owned(), ..block(parts) });
    }
    let last = args.last_mut().expect("what is repeated stands before it");
    last.is_multiple = true;
    last.is_multiple_token = has_token;
}

fn one_of(row: &Row, alternatives: &[Vec<Item>]) -> Arg {
    let mut parts: Vec<Arg> = alternatives.iter().map(|items| block(sequence(row, items))).collect();
    match parts.len() {
        1 => parts.remove(0),
        _ => Arg { name: name_of_choice(&parts), kind: Kind::OneOf, arguments: parts, ..Arg::default() },
    }
}

/// Joins several arguments into one.
fn block(mut parts: Vec<Arg>) -> Arg {
    match parts.len() {
        1 => parts.remove(0),
        _ => {
            let name = parts.first().map_or(String::new(), |first| format!("{}-block", first.name));
            Arg { name, kind: Kind::Block, arguments: parts, ..Arg::default() }
        }
    }
}

/// Redis's name for the choice, or the names of its alternatives joined.
fn name_of_choice(parts: &[Arg]) -> String {
    let tokens: Vec<&str> = parts.iter().map(|part| part.token.unwrap_or(&part.name)).collect();
    let known = match tokens[..] {
        ["NX", "XX"] | ["NX", "XX", "GT", "LT"] => "condition",
        ["GT", "LT"] => "comparison",
        ["EX", "PX", ..] => "expiration",
        ["M", "KM", "FT", "MI"] | ["BYTE", "BIT"] => "unit",
        ["ASC", "DESC"] => "order",
        ["ASYNC", "SYNC"] => "flush-type",
        ["LEFT", "RIGHT"] | ["MIN", "MAX"] | ["BEFORE", "AFTER"] => "where",
        ["SUM", "MIN", "MAX"] => "aggregate",
        ["BYSCORE", "BYLEX"] => "sortby",
        ["MAXLEN", "MINID"] => "strategy",
        ["=", "~"] => "operator",
        ["FROMMEMBER", "FROMLONLAT"] => "from",
        ["ON", "OFF"] => "status",
        _ => return tokens.join("-").to_ascii_lowercase(),
    };
    known.to_owned()
}

/// The type of a value, by its name.
fn kind(row: &Row, name: &str) -> Kind {
    let is_stream = row.group == Group::Stream;
    match name {
        "key" | "key1" | "key2" | "newkey" | "source" | "destination" | "destkey" | "sourcekey" | "destination-key"
        | "source-key"
            if !matches!(row.keys, Keys::None) =>
        {
            Kind::Key
        }
        "pattern" => Kind::Pattern,
        "unix-time-seconds" | "unix-time-milliseconds" => Kind::UnixTime,
        "increment" if row.name.ends_with("float") => Kind::Double,
        "min" | "max" if row.name.contains("score") || row.name == "zcount" => Kind::Double,
        "timeout" if row.flags.contains(&Flag::Blocking) && !row.name.starts_with("wait") => Kind::Double,
        "latitude" | "longitude" | "radius" | "width" | "height" | "score" => Kind::Double,
        "value" if matches!(row.name, "setbit" | "bitfield") => Kind::Integer,
        "start" | "end" if is_stream => Kind::String,
        "min-idle-time" if row.name == "xpending" => Kind::Integer,
        "start" | "stop" if matches!(row.name, "zrange") => Kind::String,
        "bit" | "bits" | "client-id" | "cluster-bus-port" | "config-epoch" | "count" | "cursor" | "db"
        | "decrement" | "destination-db" | "end" | "end-slot" | "entries-added" | "entries-read" | "frequency"
        | "increment" | "index" | "index1" | "index2" | "len" | "limit" | "maxage" | "milliseconds"
        | "min-match-len" | "ms" | "num-matches" | "numfields" | "numkeys" | "numlocal" | "numreplicas" | "offset"
        | "port" | "protover" | "rank" | "seconds" | "slot" | "start" | "start-slot" | "stop" | "timeout" | "ttl"
        | "version" | "weight" => Kind::Integer,
        _ => Kind::String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    /// The arguments in the notation, with the properties of each.
    fn shown(args: &[Arg]) -> String {
        let all: Vec<String> = args.iter().map(show).collect();
        all.join(" ")
    }

    fn show(arg: &Arg) -> String {
        let mut text = arg.token.map_or(String::new(), |token| format!("{token}="));
        text += &match arg.kind {
            Kind::PureToken => String::new(),
            Kind::OneOf => format!("{}<{}>", arg.name, arg.arguments.iter().map(show).collect::<Vec<_>>().join("|")),
            Kind::Block => format!("{}({})", arg.name, shown(&arg.arguments)),
            kind => format!("{}:{}", arg.name, kind.name()),
        };
        for (on, mark) in [(arg.is_optional, "?"), (arg.is_multiple, "*"), (arg.is_multiple_token, "+")] {
            text += if on { mark } else { "" };
        }
        text
    }

    fn of(name: &str) -> String {
        let row = table::all().find(|row| row.name == name).unwrap();
        shown(&arguments(row, &[0]))
    }

    #[test]
    fn a_syntax_becomes_a_tree() {
        for (name, tree) in [
            ("ping", "message:string?"),
            ("mset", "data(key:key value:string)*"),
            (
                "set",
                "key:key value:string condition<NX=|XX=>? GET=? expiration<EX=seconds:integer|PX=milliseconds:integer|\
                 EXAT=unix-time-seconds:unix-time|PXAT=unix-time-milliseconds:unix-time|KEEPTTL=>?",
            ),
            ("zrandmember", "key:key count-block(count:integer WITHSCORES=?)?"),
            (
                "zinter",
                "numkeys:integer key:key* WEIGHTS=weight:integer?* AGGREGATE=aggregate<SUM=|MIN=|MAX=>? WITHSCORES=?",
            ),
            (
                "sort",
                "key:key BY=pattern:pattern? LIMIT=limit(offset:integer count:integer)? GET=pattern:pattern?*+ \
                 order<ASC=|DESC=>? ALPHA=? STORE=destination:key?",
            ),
            (
                "xreadgroup",
                "GROUP=group(group:string consumer:string) COUNT=count:integer? BLOCK=milliseconds:integer? NOACK=? \
                 STREAMS=streams(key:key* id:string*)",
            ),
            (
                "bitfield",
                "key:key get-overflow-block<GET=get(encoding:string offset:integer)|overflow-block(OVERFLOW=overflow\
                 <WRAP=|SAT=|FAIL=>? set-incrby<SET=set(encoding:string offset:integer value:integer)|INCRBY=incrby(encoding:string offset:integer increment:integer)>)>?*",
            ),
        ] {
            assert_eq!(of(name), tree, "{name}");
        }
    }

    #[test]
    fn every_row_has_a_syntax_that_can_be_read() {
        fn brackets_close(text: &str) -> bool {
            let mut open = Vec::new();
            text.chars().all(|char| match char {
                '[' => {
                    open.push(']');
                    true
                }
                '<' => {
                    open.push('>');
                    true
                }
                ']' | '>' => open.pop() == Some(char),
                _ => true,
            }) && open.is_empty()
        }
        for row in table::all().chain(table::all().flat_map(|row| row.subcommands)) {
            assert!(brackets_close(row.syntax), "{}: {}", row.name, row.syntax);
            let args = arguments(row, &[0]);
            let all = shown(&args);
            assert!(!all.contains("()") && !all.contains(": "), "{}: {all}", row.name);
            // A command's required arguments are at most as many as its arity.
            let least = args.iter().filter(|arg| !arg.is_optional).count();
            assert!(row.subcommands.is_empty() || args.is_empty(), "{}: a container has none", row.name);
            let name = 1 + usize::from(!table::all().any(|other| std::ptr::eq(other, row)));
            assert!(least + name <= usize::from(row.arity.unsigned_abs()), "{}: {all}", row.name);
        }
    }
}
