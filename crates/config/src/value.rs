//! Owns the conversion of a directive's words to its value, and how a value is shown and written back.
//! Never knows files or other directives.

use super::row::{Kind, Row};
use super::text;
use base::size;

/// A directive's value: its words in canonical form (sizes in bytes). An empty text has no words.
pub type Value = Vec<String>;

/// The source of the words. A line adds to a repeatable directive; CONFIG SET replaces the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Line,
    Set,
}

impl Kind {
    /// Whether the value consists of several words.
    pub fn takes_words(self) -> bool {
        matches!(
            self,
            Kind::Choices(_)
                | Kind::Words(_)
                | Kind::Save
                | Kind::OutputLimits
                | Kind::OomScores
                | Kind::Percentiles
                | Kind::Primary
        )
    }

    /// Whether all following words of a line belong to the value unchanged.
    pub fn takes_lines(self) -> bool {
        matches!(self, Kind::Renames | Kind::Lines)
    }

    /// A description of the type, for the documentation.
    pub fn describe(self) -> String {
        match self {
            Kind::Bool => "yes or no".to_owned(),
            Kind::Int(low, high) => match (low, high) {
                (low, high) if high >= i64::from(i32::MAX) && low <= i64::from(i32::MIN) => "integer".to_owned(),
                (low, high) if high >= i64::from(i32::MAX) => format!("integer from {low}"),
                _ => format!("integer, {low} to {high}"),
            },
            Kind::Size(0, _) => "size".to_owned(),
            Kind::Size(low, _) if low < 1024 => format!("size from {low}"),
            Kind::Size(low, _) => format!("size from {}", size::exact(low)),
            Kind::SizeOrPercent => "size or percentage".to_owned(),
            Kind::Segment(low, high) => {
                format!("size, a power of two, {} to {}", size::exact(low), size::exact(high))
            }
            Kind::AutoOrInt(low, high) => format!("auto, or {low} to {high}"),
            Kind::Octal => "octal".to_owned(),
            Kind::Choice(words) => words.join(", "),
            Kind::Choices(words) => format!("some of {}", words.join(", ")),
            Kind::Text => "text".to_owned(),
            Kind::Password => "secret text".to_owned(),
            Kind::FileName => "file name".to_owned(),
            Kind::Path => "path".to_owned(),
            Kind::Directory => "directory".to_owned(),
            Kind::Words(_) => "words".to_owned(),
            Kind::Paths => "path, repeatable".to_owned(),
            Kind::Save => "pairs of seconds and changes".to_owned(),
            Kind::OutputLimits => "class, hard limit, soft limit, seconds; repeatable".to_owned(),
            Kind::OomScores => "three integers".to_owned(),
            Kind::Events => "letters".to_owned(),
            Kind::Percentiles => "numbers, 0 to 100".to_owned(),
            Kind::Primary => "host and port, or no one".to_owned(),
            Kind::Renames => "command and new name, repeatable".to_owned(),
            Kind::Lines => "anything, repeatable".to_owned(),
        }
    }
}

/// Reads the words after a directive's name. `before` is the directive's old value. Error texts are Redis's.
pub fn read(row: &Row, words: &[String], before: &Value, mode: Mode) -> Result<Value, String> {
    let kind = row.kind;
    // The console's password must be text. Other passwords, and lines (which define users with passwords), may be any
    // bytes.
    let takes_bytes = kind == Kind::Lines || kind == Kind::Password && row.name != "console-password";
    if !takes_bytes && !words.iter().all(|word| text::is_text(word)) {
        return Err("argument must be valid UTF-8 without NUL bytes".to_owned());
    }
    if kind.takes_words() {
        // `save "900 1 300 10"` means the same as four words.
        let split: Vec<&str> = words.iter().flat_map(|word| word.split_ascii_whitespace()).collect();
        return read_words(row, &split, before, mode);
    }
    if kind.takes_lines() {
        return read_line(row, words, before);
    }
    let [word] = words else {
        return Err("wrong number of arguments".to_owned());
    };
    if kind == Kind::Paths {
        return read_path(row, word, before, mode);
    }
    read_word(kind, word).map(|word| if word.is_empty() { vec![] } else { vec![word] })
}

/// A number with at most six decimals and without trailing zeros, as Redis shows percentiles.
fn decimal(number: f64) -> String {
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn read_word(kind: Kind, word: &str) -> Result<String, String> {
    let range = |low: &dyn std::fmt::Display, high: &dyn std::fmt::Display| {
        Err(format!("argument must be between {low} and {high} inclusive"))
    };
    match kind {
        Kind::Bool => match_choice(&["yes", "no"], word).ok_or("argument must be 'yes' or 'no'".to_owned()),
        Kind::Int(low, high) => {
            let number = integer(word).ok_or("argument couldn't be parsed into an integer")?;
            if number < low || number > high { range(&low, &high) } else { Ok(number.to_string()) }
        }
        Kind::AutoOrInt(low, high) => {
            if word.eq_ignore_ascii_case("auto") {
                return Ok("auto".to_owned());
            }
            read_word(Kind::Int(low, high), word)
        }
        Kind::Size(low, high) => {
            let bytes = size::parse(word).ok_or("argument must be a memory value")?;
            if bytes < low || bytes > high { range(&low, &high) } else { Ok(bytes.to_string()) }
        }
        Kind::Segment(low, high) => {
            let bytes = size::parse(word).ok_or("argument must be a memory value")?;
            if bytes.is_power_of_two() && bytes >= low && bytes <= high {
                return Ok(bytes.to_string());
            }
            Err(format!("argument must be a power of two between {} and {}", size::exact(low), size::exact(high)))
        }
        Kind::SizeOrPercent => {
            let Some(percent) = word.strip_suffix('%') else {
                let bytes = size::parse(word).filter(|&bytes| bytes <= i64::MAX as u64);
                return bytes.map(|bytes| bytes.to_string()).ok_or("argument must be a memory or percent value".into());
            };
            match integer(percent) {
                Some(percent @ 0..=100) => Ok(format!("{percent}%")),
                Some(101..) => Err("percentage argument must be less or equal to 100".to_owned()),
                _ => Err("argument must be a memory or percent value".to_owned()),
            }
        }
        Kind::Octal => {
            let digits = !word.is_empty() && word.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
            let mode = digits.then(|| u32::from_str_radix(word, 8).ok()).flatten();
            let mode = mode.ok_or("argument couldn't be parsed as an octal number")?;
            if mode > 0o777 {
                return Err("argument must be between 0 and 777 inclusive".to_owned());
            }
            Ok(format!("{mode:o}"))
        }
        Kind::Choice(choices) => match_choice(choices, word)
            .ok_or_else(|| format!("argument(s) must be one of the following: {}", choices.join(", "))),
        Kind::FileName if word.is_empty() => Err("a file name can't be empty".to_owned()),
        Kind::FileName if word.contains('/') => Err("it can't be a path, just a filename".to_owned()),
        Kind::Directory => {
            let path = std::fs::canonicalize(word).map_err(|error| format!("'{word}': {error}"))?;
            if !path.is_dir() {
                return Err(format!("'{word}' is not a directory"));
            }
            path.into_os_string().into_string().map_err(|_| "the directory's name must be valid UTF-8".to_owned())
        }
        Kind::Events => {
            base::events::shown(word).ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned())
        }
        _ => Ok(word.to_owned()),
    }
}

fn read_words(row: &Row, words: &[&str], before: &Value, mode: Mode) -> Result<Value, String> {
    let owned = || words.iter().map(|&word| word.to_owned()).collect::<Value>();
    match row.kind {
        Kind::Save => {
            const INVALID: &str = "Invalid save parameters";
            if words.is_empty() {
                return Ok(vec![]);
            }
            if !words.len().is_multiple_of(2) {
                return Err(INVALID.to_owned());
            }
            for pair in words.chunks_exact(2) {
                let seconds = integer(pair[0]).filter(|&seconds| seconds >= 1);
                let changes = integer(pair[1]).filter(|&changes| (0..=i64::from(i32::MAX)).contains(&changes));
                seconds.zip(changes).ok_or(INVALID)?;
            }
            let mut all = if mode == Mode::Line { before.clone() } else { vec![] };
            all.extend(owned());
            Ok(all)
        }
        Kind::OutputLimits => {
            if words.is_empty() || !words.len().is_multiple_of(4) {
                return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
            }
            let mut all = if before.is_empty() { vec![String::new(); 12] } else { before.clone() };
            for limit in words.chunks_exact(4) {
                let class = match limit[0].to_ascii_lowercase().as_str() {
                    "normal" => 0,
                    "slave" | "replica" => 1,
                    "pubsub" => 2,
                    _ => {
                        return Err("Invalid client class specified in buffer limit configuration.".to_owned());
                    }
                };
                let (hard, soft, seconds) = (size::parse(limit[1]), size::parse(limit[2]), integer(limit[3]));
                let (Some(hard), Some(soft), Some(seconds @ 0..)) = (hard, soft, seconds) else {
                    let text = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
                    return Err(text.to_owned());
                };
                let name = ["normal", "slave", "pubsub"][class];
                all[class * 4] = name.to_owned();
                all[class * 4 + 1] = hard.to_string();
                all[class * 4 + 2] = soft.to_string();
                all[class * 4 + 3] = seconds.to_string();
            }
            Ok(all)
        }
        Kind::OomScores => {
            if words.len() != 3 {
                return Err("wrong number of arguments".to_owned());
            }
            for word in words {
                if !integer(word).is_some_and(|score| (-2000..=2000).contains(&score)) {
                    return Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".to_owned());
                }
            }
            Ok(owned())
        }
        Kind::Percentiles => {
            let read = |word: &&str| {
                let percentile = word.parse::<f64>().ok().filter(|percentile| !percentile.is_nan());
                let percentile = percentile.ok_or_else(|| format!("Invalid {} parameters", row.name))?;
                match (0.0..=100.0).contains(&percentile) {
                    true => Ok(decimal(percentile)),
                    false => Err(format!("{} parameters should sit between [0.0,100.0]", row.name)),
                }
            };
            words.iter().map(read).collect()
        }
        Kind::Choices(choices) => {
            if words.is_empty() {
                return Err("wrong number of arguments".to_owned());
            }
            words
                .iter()
                .map(|word| match_choice(choices, word))
                .collect::<Option<Value>>()
                .ok_or_else(|| format!("argument(s) must be one of the following: {}", choices.join(", ")))
        }
        Kind::Words(most) if words.len() > most => Err("Too many bind addresses specified.".to_owned()),
        Kind::Primary => match words {
            [] => Ok(vec![]),
            [no, one] if no.eq_ignore_ascii_case("no") && one.eq_ignore_ascii_case("one") => Ok(vec![]),
            [_, port] if integer(port).is_some_and(|port| (0..=65535).contains(&port)) => Ok(owned()),
            [_, _] => Err("Invalid master port".to_owned()),
            _ => Err("wrong number of arguments".to_owned()),
        },
        _ => Ok(owned()),
    }
}

fn read_line(row: &Row, words: &[String], before: &Value) -> Result<Value, String> {
    let mut all = before.clone();
    if row.kind == Kind::Lines {
        if words.is_empty() {
            return Err("wrong number of arguments".to_owned());
        }
        all.push(text::join(words));
        return Ok(all);
    }
    let [command, new] = words else {
        return Err("wrong number of arguments".to_owned());
    };
    if command.is_empty() {
        return Err("No such command in rename-command".to_owned());
    }
    let taken = |name: &str| all.chunks_exact(2).any(|pair| pair[1].eq_ignore_ascii_case(name));
    if !new.is_empty() && taken(new) {
        return Err("Target command name already exists".to_owned());
    }
    all.extend([command.clone(), new.clone()]);
    Ok(all)
}

fn read_path(row: &Row, path: &str, before: &Value, mode: Mode) -> Result<Value, String> {
    let mut all = if mode == Mode::Line { before.clone() } else { vec![] };
    if path.is_empty() {
        return Ok(vec![]);
    }
    if all.iter().any(|known| known == path) {
        return Err(format!("{} '{path}' is given twice", row.name));
    }
    all.push(path.to_owned());
    Ok(all)
}

/// The value as CONFIG GET shows it.
pub fn show(row: &Row, value: &Value) -> String {
    match row.kind {
        Kind::Paths => text::join(value),
        _ => value.join(" "),
    }
}

/// The value as lines of the file, without the directive's name.
pub fn lines(row: &Row, value: &Value) -> Vec<String> {
    let shown = |word: &String| word.parse().map_or_else(|_| word.clone(), size::exact);
    let chunks = |length: usize| value.chunks_exact(length).map(text::join).collect::<Vec<_>>();
    let lines = match row.kind {
        Kind::Size(..) | Kind::SizeOrPercent | Kind::Segment(..) => value.iter().map(shown).collect(),
        Kind::Paths => chunks(1),
        Kind::Save | Kind::Renames => chunks(2),
        Kind::OutputLimits => value
            .chunks_exact(4)
            .map(|limit| format!("{} {} {} {}", limit[0], shown(&limit[1]), shown(&limit[2]), limit[3]))
            .collect(),
        Kind::Lines => value.clone(),
        _ if value.is_empty() => vec![],
        _ => vec![text::join(value)],
    };
    if lines.is_empty() { vec!["\"\"".to_owned()] } else { lines }
}

/// Whether a further line adds to the value instead of replacing it.
pub fn adds_up(row: &Row) -> bool {
    matches!(row.kind, Kind::Paths | Kind::Save)
}

/// Reads an integer by Redis's rules: no plus sign, no leading zeros, no spaces.
fn integer(word: &str) -> Option<i64> {
    word.parse::<i64>().ok().filter(|number| number.to_string() == word)
}

fn match_choice(choices: &[&str], word: &str) -> Option<String> {
    choices.iter().find(|choice| choice.eq_ignore_ascii_case(word)).map(|&choice| choice.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::table::{ROWS, find};
    use super::super::typed::{OutputLimit, output_limit};
    use super::*;

    fn line(directive: &str, before: &Value) -> Result<Value, String> {
        let mut words = text::split(directive).unwrap();
        let name = words.remove(0);
        read(&ROWS[find(&name).unwrap()], &words, before, Mode::Line)
    }
    #[track_caller]
    fn good(directive: &str, shown: &str) {
        let name = directive.split(' ').next().unwrap();
        let value = line(directive, &vec![]).unwrap();
        assert_eq!(show(&ROWS[find(name).unwrap()], &value), shown, "{directive}");
    }
    #[track_caller]
    fn bad(directive: &str, error: &str) {
        assert_eq!(line(directive, &vec![]).unwrap_err(), error, "{directive}");
    }

    #[test]
    fn single_values_are_read_in_canonical_form() {
        good("port 7000", "7000");
        good("appendonly YES", "yes");
        good("maxmemory-policy AllKeys-LRU", "allkeys-lru");
        good("client-query-buffer-limit 2MB", "2097152");
        good("ram-limit 30%", "30%");
        good("maxmemory 1gb", "1073741824");
        good("unixsocketperm 0770", "770");
        good("io-threads Auto", "auto");
        good("flash-segment-size 1mb", "1048576");
        good("slowlog-log-slower-than -1", "-1");
        good("requirepass \"a b\"", "a b");
        good("requirepass \"\"", "");
        good("list-max-listpack-size -2", "-2");
    }

    #[test]
    fn wrong_values_get_redis_error_texts() {
        bad("port", "wrong number of arguments");
        bad("port 1 2", "wrong number of arguments");
        bad("port 65536", "argument must be between 0 and 65535 inclusive");
        bad("port 0x10", "argument couldn't be parsed into an integer");
        bad("port +5", "argument couldn't be parsed into an integer");
        bad("port 007", "argument couldn't be parsed into an integer");
        bad("port \"\"", "argument couldn't be parsed into an integer");
        bad("slowlog-max-len 9223372036854775808", "argument couldn't be parsed into an integer");
        bad("appendonly maybe", "argument must be 'yes' or 'no'");
        bad("proto-max-bulk-len 1", "argument must be between 1048576 and 9223372036854775807 inclusive");
        bad("memory-limit 1tb", "argument must be a memory value");
        bad("ram-limit 101%", "percentage argument must be less or equal to 100");
        bad("ram-limit -1%", "argument must be a memory or percent value");
        bad("ram-limit x", "argument must be a memory or percent value");
        bad("unixsocketperm 1000", "argument must be between 0 and 777 inclusive");
        bad("unixsocketperm 8", "argument couldn't be parsed as an octal number");
        bad("loglevel loud", "argument(s) must be one of the following: debug, verbose, notice, warning, nothing");
        bad("flash-segment-size 3mb", "argument must be a power of two between 256kb and 128mb");
        bad("flash-segment-size 128kb", "argument must be a power of two between 256kb and 128mb");
        bad("dbfilename a/b", "it can't be a path, just a filename");
        bad("dir /no/such/directory", "'/no/such/directory': No such file or directory (os error 2)");
    }

    #[test]
    fn save_lines_add_up_and_an_empty_line_clears() {
        let mut value = line("save 3600 1", &vec![]).unwrap();
        value = line("save 300 100 60 10000", &value).unwrap();
        assert_eq!(value.join(" "), "3600 1 300 100 60 10000");
        assert_eq!(line("save \"\"", &value).unwrap(), Value::new());
        assert_eq!(line("save \"900 1\"", &vec![]).unwrap(), ["900", "1"]);
        for wrong in ["save 10", "save 10 5 20", "save a b", "save 0 1", "save 1 -1", "save 1 99999999999"] {
            bad(wrong, "Invalid save parameters");
        }
    }

    #[test]
    fn output_limits_change_only_the_named_classes() {
        let row = &ROWS[find("client-output-buffer-limit").unwrap()];
        let default: Value = row.default.split(' ').map(str::to_owned).collect();
        let value = line("client-output-buffer-limit replica 1mb 2 3 normal 4 5 6", &default).unwrap();
        assert_eq!(show(row, &value), "normal 4 5 6 slave 1048576 2 3 pubsub 33554432 8388608 60");
        assert_eq!(output_limit(&value, 1), OutputLimit { hard_bytes: 1048576, soft_bytes: 2, soft_s: 3 });
        bad("client-output-buffer-limit normal 1 2", "Wrong number of arguments in buffer limit configuration.");
        bad("client-output-buffer-limit", "Wrong number of arguments in buffer limit configuration.");
        bad("client-output-buffer-limit master 1 2 3", "Invalid client class specified in buffer limit configuration.");
        bad(
            "client-output-buffer-limit normal 1 2 -3",
            "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
        );
    }

    #[test]
    fn other_lists_are_checked_word_by_word() {
        good("latency-tracking-info-percentiles 50 99.99", "50 99.99");
        good("latency-tracking-info-percentiles 0 99.90 .5 1e2", "0 99.9 0.5 100");
        good("latency-tracking-info-percentiles \"\"", "");
        bad(
            "latency-tracking-info-percentiles 101",
            "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]",
        );
        bad("latency-tracking-info-percentiles nan", "Invalid latency-tracking-info-percentiles parameters");
        good("shutdown-on-sigint \"NOSAVE force\"", "nosave force");
        good("oom-score-adj-values 1 -2 3", "1 -2 3");
        bad("oom-score-adj-values 1", "wrong number of arguments");
        good("replicaof no one", "");
        good("slaveof 10.0.0.1 6379", "10.0.0.1 6379");
        bad("replicaof host 99999", "Invalid master port");
        good("bind 127.0.0.1 -::1", "127.0.0.1 -::1");
        bad(&format!("bind {}", "a ".repeat(17)), "Too many bind addresses specified.");
    }

    #[test]
    fn event_classes_are_shown_in_redis_order() {
        good("notify-keyspace-events KEA", "AKE");
        good("notify-keyspace-events Exd$", "$xdE");
        good("notify-keyspace-events \"\"", "");
        bad("notify-keyspace-events Q", "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.");
    }

    #[test]
    fn flash_paths_add_up_and_may_contain_spaces() {
        let value = line("flash-path /a", &vec![]).unwrap();
        let value = line("flash-path \"/b c\"", &value).unwrap();
        assert_eq!(show(&ROWS[find("flash-path").unwrap()], &value), "/a \"/b c\"");
        assert_eq!(line("flash-path /a", &value).unwrap_err(), "flash-path '/a' is given twice");
        assert_eq!(line("flash-path \"\"", &value).unwrap(), Value::new());
    }

    #[test]
    fn commands_are_renamed_in_pairs() {
        let value = line("rename-command CONFIG \"\"", &vec![]).unwrap();
        let value = line("rename-command DEBUG dbg", &value).unwrap();
        assert_eq!(value, ["CONFIG", "", "DEBUG", "dbg"]);
        assert_eq!(line("rename-command KEYS DBG", &value).unwrap_err(), "Target command name already exists");
        bad("rename-command KEYS", "wrong number of arguments");
    }

    #[test]
    fn every_value_reads_back_from_its_lines() {
        for directive in [
            "save 3600 1 300 100",
            "save \"\"",
            "client-output-buffer-limit normal 1 2 3 slave 1mb 4mb 5 pubsub 6 7 8",
            "flash-path \"/b c\"",
            "memory-limit 1000",
            "ram-limit 12%",
            "requirepass \"a \\\"b\"",
            "requirepass \"\"",
            "bind \"\"",
            "rename-command CONFIG \"\"",
            "replicaof no one",
        ] {
            let name = directive.split(' ').next().unwrap();
            let row = &ROWS[find(name).unwrap()];
            let value = line(directive, &vec![]).unwrap();
            let mut back = vec![];
            for text in lines(row, &value) {
                back = line(&format!("{name} {text}"), &back).unwrap();
            }
            assert_eq!(back, value, "{directive}");
        }
    }
}
