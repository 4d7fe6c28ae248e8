//! Owns reading directives in order: a file with its includes, standard input, the command line.
//! Never knows what a directive does; never shows the value of a secret directive.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::row::Row;
use super::table::{self, ROWS};
use super::text;
use super::value::{self, Mode, Value};

/// Maximum nesting of includes. The bound also stops a file that includes itself.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Maximum bytes of a configuration. The bound stops the reading of a device that was named by mistake.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Why a configuration was refused, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// `file:line: directive`, or a name of another source. Empty for a contradiction between directives.
    pub place: String,
    pub why: String,
}

impl LoadError {
    fn new(place: impl Into<String>, why: impl Into<String>) -> Self {
        LoadError { place: place.into(), why: why.into() }
    }
    pub(super) fn contradiction(why: String) -> Self {
        LoadError::new("", why)
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() { f.write_str(&self.why) } else { write!(f, "{}: {}", self.place, self.why) }
    }
}

impl std::error::Error for LoadError {}

/// The values of all rows while the configuration is read, and which rows the configuration names.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    pub values: Vec<Value>,
    pub named: Vec<bool>,
}

impl Loaded {
    pub fn defaults() -> Result<Self, LoadError> {
        let mut values = Vec::with_capacity(ROWS.len());
        for row in ROWS {
            values.push(default_value(row).map_err(|why| LoadError::new(row.name, why))?);
        }
        Ok(Loaded { values, named: vec![false; ROWS.len()] })
    }

    /// Sets the default of `appendonly`, which depends on flash. Not called for a database with its own file, because
    /// that file names the value.
    pub fn keep_what_is_on_flash(&mut self) {
        let at = |name| table::find(name).expect("it is in the table");
        let (kept, paths) = (at("appendonly"), at("flash-path"));
        if !self.named[kept] && !self.values[paths].is_empty() {
            self.values[kept] = vec!["yes".to_owned()];
        }
    }

    /// Reads a file and its includes.
    pub fn file(&mut self, path: &Path) -> Result<(), LoadError> {
        self.file_at(path, 0)
    }

    fn file_at(&mut self, path: &Path, depth: usize) -> Result<(), LoadError> {
        let place = path.display().to_string();
        let file = std::fs::File::open(path)
            .map_err(|error| LoadError::new(&place, format!("can't open the configuration file: {error}")))?;
        let text = read_text(file).map_err(|error| LoadError::new(&place, error.to_string()))?;
        self.text_at(&place, &text, depth)
    }

    /// Reads text. Errors name a line as `place:LINE`.
    pub fn text(&mut self, place: &str, text: &str) -> Result<(), LoadError> {
        self.text_at(place, text, 0)
    }

    fn text_at(&mut self, place: &str, text: &str, depth: usize) -> Result<(), LoadError> {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = format!("{place}:{}", number + 1);
            let words = text::split(line).map_err(|why| LoadError::new(&place, why))?;
            self.directive(&place, &words, depth)?;
        }
        Ok(())
    }

    /// Applies one directive: its name and its words.
    pub fn directive(&mut self, place: &str, words: &[String], depth: usize) -> Result<(), LoadError> {
        let Some((name, words)) = words.split_first() else {
            return Ok(());
        };
        if name.eq_ignore_ascii_case("include") {
            let [pattern] = words else {
                return Err(LoadError::new(format!("{place}: include"), "wrong number of arguments"));
            };
            return self.include(place, pattern, depth + 1);
        }
        if name.eq_ignore_ascii_case("sentinel") {
            return Err(LoadError::new(place, "Sentinel is not supported"));
        }
        let Some((index, words)) = resolve(name, words) else {
            let why = if name.eq_ignore_ascii_case("storage-provider") {
                "only 'storage-provider flash PATH' is supported".to_owned()
            } else {
                format!("unknown directive '{}'{}", printable(name), suggestion(name))
            };
            return Err(LoadError::new(place, why));
        };
        let row = &ROWS[index];
        let value = value::read(row, words, &self.values[index], Mode::Line).map_err(|why| {
            let mut shown = name.clone();
            if !words.is_empty() && !table::is_secret(row.name) {
                shown.extend(format!(" {}", text::join(words)).chars().take(200));
            }
            LoadError::new(format!("{place}: {shown}"), why)
        })?;
        self.values[index] = value;
        self.named[index] = true;
        Ok(())
    }

    fn include(&mut self, place: &str, pattern: &str, depth: usize) -> Result<(), LoadError> {
        if depth > INCLUDE_DEPTH_MAX {
            let why =
                format!("include '{pattern}' is nested more than {INCLUDE_DEPTH_MAX} deep: does it include itself?");
            return Err(LoadError::new(place, why));
        }
        if !text::is_pattern(pattern) {
            return self.file_at(Path::new(pattern), depth).map_err(|error| match error.place == pattern {
                true => LoadError::new(format!("{place}: include {pattern}"), error.why),
                false => error,
            });
        }
        let files = text::glob_files(pattern)
            .map_err(|error| LoadError::new(format!("{place}: include {pattern}"), error.to_string()))?;
        for file in files {
            self.file_at(&file, depth)?;
        }
        Ok(())
    }
}

/// The row that a directive sets, and its words. KeyDB's `storage-provider flash PATH` sets flash-path.
pub(super) fn resolve<'a>(name: &str, words: &'a [String]) -> Option<(usize, &'a [String])> {
    if name.eq_ignore_ascii_case("storage-provider") {
        let [provider, path @ ..] = words else {
            return None;
        };
        return Some((table::find("flash-path")?, path)).filter(|_| provider.eq_ignore_ascii_case("flash"));
    }
    table::find(name).map(|index| (index, words))
}

pub(super) fn default_value(row: &Row) -> Result<Value, String> {
    if row.default.is_empty() {
        return Ok(vec![]);
    }
    value::read(row, &[row.default.to_owned()], &vec![], Mode::Line)
}

fn read_text(source: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    source.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("a configuration is at most {FILE_BYTES_MAX} bytes long")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|&&b| b == b'\n').count();
        io::Error::other(format!("line {line} is not valid UTF-8"))
    })
}

/// A name from outside, without control characters and with at most 64 characters, for error texts.
fn printable(name: &str) -> String {
    name.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// `: did you mean …?` if the name of a directive differs by one or two letters.
fn suggestion(name: &str) -> String {
    let near = ROWS
        .iter()
        .flat_map(|row| [row.name, row.alias])
        .filter(|known| !known.is_empty() && name.len() <= 64)
        .map(|known| (distance(name.as_bytes(), known.as_bytes()), known))
        .filter(|&(distance, known)| distance <= 2 && distance < known.len())
        .min();
    near.map_or(String::new(), |(_, known)| format!(": did you mean '{known}'?"))
}

/// The Levenshtein distance.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(!x.eq_ignore_ascii_case(y));
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// The parsed arguments of `flintkv server`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Launch {
    pub file: Option<PathBuf>,
    pub stdin: bool,
    /// Each entry is the name of a directive and its words.
    pub directives: Vec<Vec<String>>,
}

/// Parses `[CONF|-] [--directive value …]` by redis-server's rules: a `-` may also come last.
pub(super) fn arguments(args: &[String]) -> Result<Launch, LoadError> {
    let mut launch = Launch::default();
    let mut rest = args;
    if let [first, tail @ ..] = rest
        && !first.starts_with("--")
    {
        launch.stdin = first == "-";
        launch.file = (!launch.stdin).then(|| PathBuf::from(first));
        rest = tail;
    }
    if let [head @ .., last] = rest
        && last == "-"
    {
        launch.stdin = true;
        rest = head;
    }
    while let [first, tail @ ..] = rest {
        rest = tail;
        let Some(option) = first.strip_prefix("--") else {
            return Err(LoadError::new(
                "command line",
                format!(
                    "unexpected argument '{}': a directive begins with --, and one configuration file may come first",
                    printable(first)
                ),
            ));
        };
        // "--port 7000" may also be one argument.
        let mut words = match option.contains(char::is_whitespace) {
            true => text::split(option).map_err(|why| LoadError::new("command line", why))?,
            false => vec![option.to_owned()],
        };
        let name = words.first().cloned().unwrap_or_default();
        let kind = match resolve(&name, &["flash".to_owned()]) {
            Some((index, _)) if !name.eq_ignore_ascii_case("storage-provider") => Some(ROWS[index].kind),
            _ => None,
        };
        let one = kind.is_some_and(|kind| !kind.takes_words() && !kind.takes_lines());
        if one || name.eq_ignore_ascii_case("include") {
            // A single value may begin with -- too.
            if words.len() == 1
                && let [next, tail @ ..] = rest
            {
                words.push(next.clone());
                rest = tail;
            }
        }
        while let [next, tail @ ..] = rest
            && !next.starts_with("--")
        {
            words.push(next.clone());
            rest = tail;
        }
        launch.directives.push(words);
    }
    Ok(launch)
}

impl Launch {
    /// Reads all sources in redis-server's order: file, standard input, command line.
    pub fn load(&self, stdin: impl Read) -> Result<Loaded, LoadError> {
        let mut loaded = Loaded::defaults()?;
        if let Some(file) = &self.file {
            loaded.file(file)?;
        }
        if self.stdin {
            let text = read_text(stdin).map_err(|error| LoadError::new("standard input", error.to_string()))?;
            loaded.text("standard input", &text)?;
        }
        for words in &self.directives {
            loaded.directive("command line", words, 0)?;
        }
        Ok(loaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);
    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("flintkv-load-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            Scratch(dir)
        }
        fn write(&self, name: &str, text: &str) -> String {
            let path = self.0.join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        }
    }
    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn args(words: &[&str]) -> Result<Launch, LoadError> {
        arguments(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }
    fn load(words: &[&str], stdin: &str) -> Result<Loaded, LoadError> {
        args(words)?.load(stdin.as_bytes())
    }
    #[track_caller]
    fn gives(words: &[&str], stdin: &str, expected: &[(&str, &str)]) {
        let loaded = load(words, stdin).unwrap_or_else(|error| panic!("{words:?} {stdin}: {error}"));
        for (name, shown) in expected {
            assert_eq!(loaded.values[table::find(name).unwrap()].join(" "), *shown, "{name} of {words:?} {stdin}");
        }
    }
    #[track_caller]
    fn fails(words: &[&str], stdin: &str, error: &str) {
        assert_eq!(load(words, stdin).unwrap_err().to_string(), error);
    }

    #[test]
    fn every_default_is_a_valid_value() {
        Loaded::defaults().unwrap();
    }

    #[test]
    fn lines_are_read_in_order_and_the_last_wins() {
        let text = "# a comment\n\n  PORT 7000\r\n\tport \"7001\"  \ntimeout 5\n#port 9";
        gives(&["-"], text, &[("port", "7001"), ("timeout", "5")]);
    }

    #[test]
    fn lines_of_some_directives_add_up() {
        let text = "save 3600 1\nsave 60 10\nflash-path /a\nstorage-provider flash /b\nrename-command CONFIG \"\"\n";
        gives(&["-"], text, &[("save", "3600 1 60 10"), ("flash-path", "/a /b"), ("rename-command", "CONFIG ")]);
        gives(&["-"], "save 3600 1\nsave \"\"\nsave 5 5", &[("save", "5 5")]);
        gives(&["-", "--save", ""], "save 3600 1", &[("save", "")]);
    }

    #[test]
    fn a_wrong_line_is_named() {
        fails(&["-"], "port 1\nport x", "standard input:2: port x: argument couldn't be parsed into an integer");
        fails(&["-"], "prot 1", "standard input:1: unknown directive 'prot': did you mean 'port'?");
        fails(&["-"], "qqqqqqqq 1", "standard input:1: unknown directive 'qqqqqqqq'");
        fails(&["-"], "port \"1", "standard input:1: Unbalanced quotes in configuration line");
        fails(&["-"], "storage-provider disk /a", "standard input:1: only 'storage-provider flash PATH' is supported");
        fails(&["-"], "storage-provider flash", "standard input:1: storage-provider: wrong number of arguments");
        fails(&["-"], "sentinel monitor a", "standard input:1: Sentinel is not supported");
        fails(&["-"], "\u{1b}[31m 1", "standard input:1: unknown directive '?[31m'");
    }

    #[test]
    fn a_secret_is_never_part_of_an_error() {
        for text in ["requirepass hush hush", "masterauth \"hush", "user \"hush", "requirepas hush"] {
            let error = load(&["-"], text).unwrap_err().to_string();
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn input_that_is_not_text_is_refused() {
        let error = args(&["-"]).unwrap().load(&b"port 1\n\xff\xfe"[..]).unwrap_err();
        assert_eq!(error.to_string(), "standard input: line 2 is not valid UTF-8");
        let endless = args(&["-"]).unwrap().load(io::repeat(b'#')).unwrap_err();
        assert!(endless.to_string().contains("at most"), "{endless}");
    }

    #[test]
    fn the_command_line_is_read_as_redis_server_reads_it() {
        gives(&["--port", "7000", "--save", ""], "", &[("port", "7000"), ("save", "")]);
        gives(&["--port 7000", "--loglevel debug"], "", &[("port", "7000"), ("loglevel", "debug")]);
        gives(&["--save", "--port", "1"], "", &[("save", ""), ("port", "1")]);
        gives(&["--save", "3600", "1", "60", "1000"], "", &[("save", "3600 1 60 1000")]);
        gives(&["--save", "3600 1 60 1000"], "", &[("save", "3600 1 60 1000")]);
        gives(&["--bind", "127.0.0.1", "-::1", "--port", "1"], "", &[("bind", "127.0.0.1 -::1"), ("port", "1")]);
        gives(&["--shutdown-on-sigint", "nosave force"], "", &[("shutdown-on-sigint", "nosave force")]);
        gives(
            &["--proc-title-template", "--my--title", "--port", "2"],
            "",
            &[("proc-title-template", "--my--title"), ("port", "2")],
        );
        gives(&["--slowlog-log-slower-than", "-1"], "", &[("slowlog-log-slower-than", "-1")]);
        gives(&["--flash-path", "/a b", "--flash-path", "/c"], "", &[("flash-path", "/a b /c")]);
        gives(&["--storage-provider", "flash", "/a", "--port", "3"], "", &[("flash-path", "/a"), ("port", "3")]);
        gives(&["--rename-command", "CONFIG", ""], "", &[("rename-command", "CONFIG ")]);
    }

    #[test]
    fn a_wrong_command_line_is_refused() {
        fails(&["--port"], "", "command line: port: wrong number of arguments");
        fails(&["--port", "1", "2"], "", "command line: port 1 2: wrong number of arguments");
        fails(&["--prot", "8"], "", "command line: unknown directive 'prot': did you mean 'port'?");
        fails(&["--"], "", "command line: unknown directive ''");
        let error = args(&["a.conf", "b.conf"]).unwrap_err().to_string();
        assert!(error.starts_with("command line: unexpected argument 'b.conf'"), "{error}");
    }

    #[test]
    fn standard_input_may_come_first_or_last() {
        gives(&["-", "--port", "2"], "port 1\ntimeout 3", &[("port", "2"), ("timeout", "3")]);
        gives(&["--port", "2", "-"], "port 1", &[("port", "2")]);
        let launch = args(&["x.conf", "--port", "2", "-"]).unwrap();
        assert_eq!(launch.file, Some(PathBuf::from("x.conf")));
        assert!(launch.stdin);
    }

    #[test]
    fn the_file_comes_before_the_command_line() {
        let scratch = Scratch::new("file");
        let file = scratch.write("a.conf", "port 1\ntimeout 2\n");
        gives(&[&file, "--port", "7"], "", &[("port", "7"), ("timeout", "2")]);
        let missing = format!("{file}.none");
        fails(
            &[&missing],
            "",
            &format!("{missing}: can't open the configuration file: No such file or directory (os error 2)"),
        );
    }

    #[test]
    fn an_include_is_read_at_its_own_line() {
        let scratch = Scratch::new("include");
        scratch.write("1.conf", "port 1\ntimeout 1\n");
        scratch.write("2.conf", "port 2\n");
        let dir = scratch.0.display();
        let all = format!("port 9\ninclude {dir}/[12].conf\ntimeout 3\ninclude {dir}/none*.conf");
        gives(&["-"], &all, &[("port", "2"), ("timeout", "3")]);
        gives(&["--include", &format!("{dir}/1.conf")], "", &[("port", "1")]);
        let missing = load(&["-"], &format!("include {dir}/none.conf")).unwrap_err().to_string();
        assert!(missing.starts_with(&format!("standard input:1: include {dir}/none.conf: can't open")), "{missing}");
        let wrong = scratch.write("3.conf", "timeout 1\nport x\n");
        fails(
            &["-"],
            &format!("include {wrong}"),
            &format!("{wrong}:2: port x: argument couldn't be parsed into an integer"),
        );
    }

    #[test]
    fn a_file_that_includes_itself_is_refused() {
        let scratch = Scratch::new("loop");
        let path = scratch.0.join("self.conf");
        std::fs::write(&path, format!("include {}\n", path.display())).unwrap();
        let error = load(&[path.to_str().unwrap()], "").unwrap_err().to_string();
        assert!(error.ends_with("is nested more than 16 deep: does it include itself?"), "{error}");
    }
}
