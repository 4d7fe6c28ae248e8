//! Owns the database's libraries of functions: names, flags, code, and their form in FUNCTION DUMP.
//! Never runs a function.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The flags that a script's first line or a function's registration declares.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Flags {
    /// Whether flags were declared. A script without `#!` declares none, and the older rules apply.
    pub given: bool,
    pub no_writes: bool,
    pub allow_oom: bool,
    pub allow_stale: bool,
    pub no_cluster: bool,
    pub allow_cross_slot_keys: bool,
}

impl Flags {
    pub fn set(&mut self, name: &[u8]) -> bool {
        let flag = match name {
            b"no-writes" => &mut self.no_writes,
            b"allow-oom" => &mut self.allow_oom,
            b"allow-stale" => &mut self.allow_stale,
            b"no-cluster" => &mut self.no_cluster,
            b"allow-cross-slot-keys" => &mut self.allow_cross_slot_keys,
            _ => return false,
        };
        *flag = true;
        true
    }

    /// The names of the flags, in Redis's order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [
            (self.no_writes, "no-writes"),
            (self.allow_oom, "allow-oom"),
            (self.allow_stale, "allow-stale"),
            (self.no_cluster, "no-cluster"),
            (self.allow_cross_slot_keys, "allow-cross-slot-keys"),
        ]
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name))
    }
}

/// A registered function.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub description: Option<String>,
    pub flags: Flags,
}

#[derive(Debug)]
pub struct Library {
    pub name: String,
    /// The whole code, including the first line.
    pub code: Box<[u8]>,
    /// Sorted by name.
    pub functions: Vec<Function>,
}

#[derive(Default, Clone)]
pub struct Libraries {
    by_name: BTreeMap<String, Arc<Library>>,
    /// Maps a function's name in lower case to its library and its index there.
    functions: HashMap<String, (Arc<Library>, usize)>,
}

impl Libraries {
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    pub fn function_count(&self) -> usize {
        self.functions.len()
    }

    /// The library of a function, and the function's index there. Case is ignored.
    pub fn find(&self, function: &str) -> Option<(Arc<Library>, usize)> {
        let (library, at) = self.functions.get(&function.to_ascii_lowercase())?;
        Some((Arc::clone(library), *at))
    }

    /// Adds a library. The error is the whole error text including the code; after an error nothing has changed.
    pub fn add(&mut self, library: Library, replace: bool) -> Result<(), String> {
        if self.has(&library.name) && !replace {
            return Err(format!("ERR Library {} already exists", library.name));
        }
        let mut own = HashSet::new();
        for function in &library.functions {
            let name = function.name.to_ascii_lowercase();
            let is_taken = self.functions.get(&name).is_some_and(|(other, _)| other.name != library.name);
            if is_taken || !own.insert(name) {
                return Err(format!("ERR Function {} already exists", function.name));
            }
        }
        self.remove(&library.name);
        let library = Arc::new(library);
        for (at, function) in library.functions.iter().enumerate() {
            self.functions.insert(function.name.to_ascii_lowercase(), (Arc::clone(&library), at));
        }
        self.by_name.insert(library.name.clone(), library);
        Ok(())
    }

    pub fn remove(&mut self, name: &str) -> bool {
        let Some(library) = self.by_name.remove(name) else { return false };
        self.functions.retain(|_, (other, _)| !Arc::ptr_eq(other, &library));
        true
    }
}

/// Whether the text is a valid name of a library or function.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Reads the name from a library's first line, `#!lua name=…`.
pub fn name_of(code: &[u8]) -> Result<String, String> {
    if !code.starts_with(b"#!") {
        return Err("ERR Missing library metadata".to_owned());
    }
    let Some(end) = code.iter().position(|&byte| byte == b'\n') else {
        return Err("ERR Invalid library metadata".to_owned());
    };
    let shown = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let words = resp::words(&code[..end]).ok_or("ERR Invalid library metadata")?;
    let (first, words) = words.split_first().ok_or("ERR Invalid library metadata")?;
    let engine = first.get(2..).unwrap_or_default();
    let mut name = None;
    for word in words {
        let given = match word.split_at_checked(5) {
            Some((key, given)) if key.eq_ignore_ascii_case(b"name=") => given,
            _ => return Err(format!("ERR Invalid metadata value given: {}", shown(word))),
        };
        if name.replace(given).is_some() {
            return Err("ERR Invalid metadata value, name argument was given multiple times".to_owned());
        }
    }
    let Some(name) = name else { return Err("ERR Library name was not given".to_owned()) };
    if !is_name(name) {
        return Err("ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one \
                    character long"
            .to_owned());
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(format!("ERR Engine '{}' not found", shown(engine)));
    }
    Ok(shown(name))
}
