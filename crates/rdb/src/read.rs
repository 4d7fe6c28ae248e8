//! Owns reading a file: one item after another. Never holds more of a collection than a piece, except a collection
//! whose encoding is one string, and a stream unless it is read in parts.

use crate::opcode::{self, module};
use crate::stream;
use crate::window::{Error, PIECE_BYTES, PIECE_MEMBERS, Window};
use std::io::Read;
use value::Corrupt;
use value::rdb::stream::{Miscount, Version};
use value::rdb::{self, Decoded, Parts, Type};
use value::stream::Stream;

/// The newest version of Redis's format that is read, and the version of Valkey's.
const VERSION_MAX: u32 = 12;
const VALKEY_VERSION: u32 = 80;
/// Files have a checksum since this version.
const CHECKSUM_VERSION: u32 = 5;

/// Pages and dictionaries must be shorter than this.
const OWN_BYTES_MAX: u64 = 4 << 20;

/// The items of a file, in their order.
#[derive(Debug)]
pub enum Item {
    Aux(Vec<u8>, Vec<u8>),
    /// A library's code.
    Function(Vec<u8>),
    Key(Key),
    /// A piece of the value of the last key.
    Piece(Piece),
    EndOfKey,
    /// Data of a module, which was skipped: the module's name, and the key if it was a value.
    Skipped {
        module: String,
        key: Option<Vec<u8>>,
    },
    /// Pages of another FlintKV's flash, and a dictionary for the pages behind it. Only a replica accepts them.
    Pages(Vec<u8>),
    Dictionary(Vec<u8>),
    /// Nothing follows.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The logical database.
    pub db: u64,
    pub name: Vec<u8>,
    /// Milliseconds since 1970.
    pub expiry_ms: Option<u64>,
    pub idle_s: Option<u64>,
    pub frequency: Option<u8>,
    /// The encoding of the value in the file.
    pub kind: u8,
}

/// A part of a value: members that follow those of the pieces before it. A string is one piece, and so is a stream
/// unless it is read in parts.
#[derive(Debug)]
pub enum Piece {
    Value(Decoded),
    /// Fields and values alternately, and for each field when it expires: milliseconds since 1970, or 0: never.
    Fields(Parts, Vec<u64>),
    /// What `Stream::merge` adds to the stream of the pieces before it, and what was wrong with the counts of the whole
    /// stream.
    Stream(Box<Stream>, Option<Miscount>),
}

impl Piece {
    /// Whether the piece has no members. Old Redis wrote collections without members. Newer versions leave such keys
    /// out.
    pub fn is_empty(&self) -> bool {
        match self {
            Piece::Value(Decoded::String(_) | Decoded::Stream(..)) | Piece::Stream(..) => false,
            Piece::Value(
                Decoded::List(parts) | Decoded::Set(parts) | Decoded::Hash(parts) | Decoded::ZSet(parts, _),
            )
            | Piece::Fields(parts, _) => parts.is_empty(),
        }
    }
}

/// What the next item will be read from.
enum ReadState {
    Records,
    Value(Form, Left),
    /// Parts of this stream follow.
    Stream(Box<stream::Parts>),
    EndOfKey,
    End,
}

/// How much of a value is left.
#[derive(Clone, Copy)]
enum Left {
    /// Everything: the number of members is not read yet.
    All,
    Members(u64),
}

#[derive(Clone, Copy)]
enum Form {
    Plain(Type),
    /// Valkey's hash: field, value, expiry.
    FieldsLast,
    /// Redis's hash: expiry, field, value. An expiry of 1 means this time, 2 a millisecond later.
    FieldsFirst(u64),
    /// Redis's hash as a listpack.
    FieldsPacked,
}

/// What precedes a key and belongs to it.
#[derive(Default)]
struct Ahead {
    expiry_ms: Option<u64>,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

pub struct Reader<R> {
    window: Window<R>,
    version: u32,
    is_valkey: bool,
    checks: bool,
    db: u64,
    /// Whether [`Item::Pages`] and [`Item::Dictionary`] are accepted.
    has_pages: bool,
    /// Whether the later parts of a long stream are returned as [`Piece::Stream`].
    parts_streams: bool,
    /// The name of the last key, for errors.
    name: Vec<u8>,
    state: ReadState,
}

impl<R: Read> Reader<R> {
    /// Reads the magic. `checks`: whether the checksum at the end is compared.
    pub fn new(source: R, checks: bool) -> Result<Reader<R>, Error> {
        let mut window = Window::new(source);
        let magic: [u8; 9] = match window.read("the magic", |reader| reader.array()) {
            Err(Error::Truncated { .. }) => return Err(window.bad("this is not an RDB file: it is too short")),
            magic => magic?,
        };
        let number = |digits: &[u8]| {
            let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            text.and_then(|text| text.parse::<u32>().ok())
        };
        let bad = |what: String| Err(Error::Bad { offset: 0, what });
        let (is_valkey, version) = match (&magic[..5], &magic[..6]) {
            (b"REDIS", _) => (false, number(&magic[5..])),
            (_, b"VALKEY") => (true, number(&magic[6..])),
            _ => return bad("this is not an RDB file: it begins with neither REDIS nor VALKEY".to_owned()),
        };
        let version = match version {
            Some(version @ 1..=VERSION_MAX) if !is_valkey => version,
            Some(VALKEY_VERSION) if is_valkey => VALKEY_VERSION,
            Some(version) => {
                return bad(format!(
                    "its version {version} is unknown: versions 1 to {VERSION_MAX} of Redis and {VALKEY_VERSION} of Valkey \
                     can be read"
                ));
            }
            None => return bad("this is not an RDB file: its version is not a number".to_owned()),
        };
        Ok(Reader {
            window,
            version,
            is_valkey,
            checks,
            db: 0,
            has_pages: false,
            parts_streams: false,
            name: Vec::new(),
            state: ReadState::Records,
        })
    }

    /// Accepts pages: the file comes from a primary that may send them.
    #[must_use]
    pub fn with_pages(self) -> Reader<R> {
        Reader { has_pages: true, ..self }
    }

    /// Reads a stream that is longer than a piece in parts.
    #[must_use]
    pub fn with_parts_of_streams(self) -> Reader<R> {
        Reader { parts_streams: true, ..self }
    }

    fn in_key(&mut self, error: Error) -> Error {
        Error::InKey { name: std::mem::take(&mut self.name), error: error.into() }
    }

    /// Where the next item begins.
    pub fn offset(&self) -> u64 {
        self.window.offset()
    }

    /// The next item. After an error and after [`Item::End`] there is none.
    pub fn next_item(&mut self) -> Result<Item, Error> {
        match std::mem::replace(&mut self.state, ReadState::End) {
            ReadState::Records => self.record(),
            ReadState::Value(form, left) => self.piece(form, left).map(Item::Piece).map_err(|error| self.in_key(error)),
            ReadState::Stream(parts) => {
                self.stream_part(parts, false).map(Item::Piece).map_err(|error| self.in_key(error))
            }
            ReadState::EndOfKey => {
                self.state = ReadState::Records;
                Ok(Item::EndOfKey)
            }
            ReadState::End => Ok(Item::End),
        }
    }

    /// What follows the file in its input. To be called after [`Item::End`].
    pub fn into_rest(self) -> (Vec<u8>, R) {
        self.window.into_rest()
    }

    fn len(&mut self, what: &str) -> Result<u64, Error> {
        self.window.read(what, |reader| reader.len())
    }

    fn string(&mut self, what: &str) -> Result<Vec<u8>, Error> {
        self.window.read(what, |reader| reader.string().map(|string| string.into_owned()))
    }

    /// Bytes that have a checksum of their own.
    fn own(&mut self, what: &str) -> Result<Vec<u8>, Error> {
        match self.len(what)? {
            bytes @ ..=OWN_BYTES_MAX => self.window.unsummed(bytes as usize),
            bytes => Err(self.window.bad(format!("{what} of {bytes} bytes are too long"))),
        }
    }

    fn byte(&mut self, what: &str) -> Result<u8, Error> {
        self.window.read(what, |reader| reader.byte())
    }

    /// Reads up to the next key, or to another item before it.
    fn record(&mut self) -> Result<Item, Error> {
        let mut ahead = Ahead::default();
        loop {
            match self.byte("a record")? {
                opcode::EXPIRY_S => {
                    let seconds = self.window.read("an expiry", |reader| reader.array().map(i32::from_le_bytes))?;
                    ahead.expiry_ms = Some(u64::try_from(seconds).unwrap_or(0) * 1000);
                }
                opcode::EXPIRY_MS => {
                    let ms = self.window.read("an expiry", |reader| reader.array().map(i64::from_le_bytes))?;
                    ahead.expiry_ms = Some(u64::try_from(ms).unwrap_or(0));
                }
                opcode::IDLE => ahead.idle_s = Some(self.len("an idle time")?),
                opcode::FREQUENCY => ahead.frequency = Some(self.byte("a frequency")?),
                opcode::SELECT => self.db = self.len("the number of a database")?,
                opcode::RESIZE => {
                    self.len("the size of a database")?;
                    self.len("the size of a database")?;
                }
                opcode::SLOT_INFO => {
                    for _ in 0..3 {
                        self.len("the size of a slot")?;
                    }
                }
                opcode::AUX => {
                    self.state = ReadState::Records;
                    return Ok(Item::Aux(self.string("a remark")?, self.string("a remark")?));
                }
                opcode::FUNCTION => {
                    self.state = ReadState::Records;
                    return Ok(Item::Function(self.string("a library")?));
                }
                opcode::PAGES | opcode::DICTIONARY if !self.has_pages => {
                    return Err(self.window.bad(
                        "it has pages of a FlintKV server's flash, which only a replica of this server can load",
                    ));
                }
                opcode::PAGES => {
                    self.state = ReadState::Records;
                    return Ok(Item::Pages(self.own("pages")?));
                }
                opcode::DICTIONARY => {
                    self.state = ReadState::Records;
                    return Ok(Item::Dictionary(self.own("a dictionary")?));
                }
                opcode::FUNCTION_BEFORE_RELEASE => {
                    return Err(self
                        .window
                        .bad("it has functions of a release candidate of Redis 7.0, which no released version reads"));
                }
                opcode::MODULE_AUX => {
                    let module = self.module_name()?;
                    // The opcode of a number, and the number that says when the module expects its data.
                    self.len("a module's data")?;
                    self.len("a module's data")?;
                    self.skip_module()?;
                    self.state = ReadState::Records;
                    return Ok(Item::Skipped { module, key: None });
                }
                opcode::END => return self.end(),
                kind => return self.key(kind, ahead),
            }
        }
    }

    fn key(&mut self, kind: u8, ahead: Ahead) -> Result<Item, Error> {
        let form = self.form(kind)?;
        let name = self.string("the name of a key")?;
        let Some(form) = form else {
            let module = self.module_name()?;
            self.skip_module()?;
            self.state = ReadState::Records;
            return Ok(Item::Skipped { module, key: Some(name) });
        };
        let form = match (kind, form) {
            (opcode::HASH_FIELDS, _) => Form::FieldsFirst(self.moment()?),
            (opcode::HASH_LISTPACK_FIELDS, form) => {
                self.moment()?;
                form
            }
            (_, form) => form,
        };
        self.state = ReadState::Value(form, Left::All);
        self.name.clear();
        self.name.extend_from_slice(&name);
        let Ahead { expiry_ms, idle_s, frequency } = ahead;
        Ok(Item::Key(Key { db: self.db, name, expiry_ms, idle_s, frequency, kind }))
    }

    /// How the value of a type is read. `None`: a module's value.
    fn form(&self, kind: u8) -> Result<Option<Form>, Error> {
        if let Some(kind) = Type::from_u8(kind) {
            return Ok(Some(Form::Plain(kind)));
        }
        Ok(Some(match kind {
            opcode::MODULE => return Ok(None),
            opcode::HASH_22 if self.is_valkey => Form::FieldsLast,
            _ if self.is_valkey || self.version < VERSION_MAX => return Err(self.unknown(kind)),
            // Before the release, expiries were not stored as differences.
            opcode::HASH_22 | opcode::HASH_FIELDS => Form::FieldsFirst(1),
            opcode::HASH_LISTPACK_BEFORE_RELEASE | opcode::HASH_LISTPACK_FIELDS => Form::FieldsPacked,
            _ => return Err(self.unknown(kind)),
        }))
    }

    fn unknown(&self, kind: u8) -> Error {
        match kind {
            opcode::MODULE_BEFORE_RELEASE => {
                self.window.bad("a module's value in the format before Redis 4.0, which cannot be skipped")
            }
            kind => self.window.bad(format!("a record of the unknown type {kind}")),
        }
    }

    /// Milliseconds since 1970.
    fn moment(&mut self) -> Result<u64, Error> {
        self.window.read("an expiry", |reader| reader.array().map(u64::from_le_bytes))
    }

    /// The next piece of a value. Sets the state that follows.
    fn piece(&mut self, form: Form, left: Left) -> Result<Piece, Error> {
        self.state = ReadState::EndOfKey;
        match form {
            Form::Plain(kind @ (Type::Stream1 | Type::Stream2 | Type::Stream3)) if self.parts_streams => {
                self.stream_part(Box::new(stream::Parts::new(version(kind))), true)
            }
            Form::Plain(kind) => self.plain(kind, left).map(Piece::Value),
            Form::FieldsPacked => self.window.read("a hash", |reader| {
                let (mut pairs, mut expiries) = (Parts::new(), Vec::new());
                let triples = rdb::listpack_parts(&reader.string()?)?;
                let mut words = triples.iter();
                while let Some(field) = words.next() {
                    pairs.push(field)?;
                    pairs.push(words.next().ok_or(Corrupt)?)?;
                    let expiry = std::str::from_utf8(words.next().ok_or(Corrupt)?).map_err(|_| Corrupt)?;
                    expiries.push(expiry.parse().map_err(|_| Corrupt)?);
                }
                Ok(Piece::Fields(pairs, expiries))
            }),
            Form::FieldsFirst(first) => self.fields(form, left, |reader, pairs| {
                let expiry = match reader.len()? {
                    0 => 0,
                    after => first.checked_add(after - 1).ok_or(Corrupt)?,
                };
                pairs.push(&reader.string()?)?;
                pairs.push(&reader.string()?)?;
                Ok(expiry)
            }),
            Form::FieldsLast => self.fields(form, left, |reader, pairs| {
                pairs.push(&reader.string()?)?;
                pairs.push(&reader.string()?)?;
                Ok(u64::try_from(reader.array().map(i64::from_le_bytes)?).unwrap_or(0))
            }),
        }
    }

    fn fields(
        &mut self,
        form: Form,
        left: Left,
        read: impl Fn(&mut rdb::Reader<'_>, &mut Parts) -> Result<u64, Corrupt>,
    ) -> Result<Piece, Error> {
        let (mut pairs, mut expiries) = (Parts::new(), Vec::new());
        self.members(form, left, |window| {
            let (pair, expiry) = window.read("a field", |reader| {
                let mut pair = Parts::new();
                let expiry = read(reader, &mut pair)?;
                Ok((pair, expiry))
            })?;
            pairs.append(&pair).map_err(|Corrupt| window.bad("a field is too long"))?;
            expiries.push(expiry);
            Ok(pairs.bytes())
        })?;
        Ok(Piece::Fields(pairs, expiries))
    }

    /// Reads members until the piece is full, each by `read`, which returns the bytes of the piece so far.
    fn members(
        &mut self,
        form: Form,
        left: Left,
        mut read: impl FnMut(&mut Window<R>) -> Result<usize, Error>,
    ) -> Result<(), Error> {
        let mut left = match left {
            Left::Members(left) => left,
            Left::All => self.len("the size of a collection")?,
        };
        let mut read_members = 0;
        while left > 0 {
            left -= 1;
            read_members += 1;
            if read(&mut self.window)? >= PIECE_BYTES || read_members == PIECE_MEMBERS {
                break;
            }
        }
        if left > 0 {
            self.state = ReadState::Value(form, Left::Members(left));
        }
        Ok(())
    }

    fn plain(&mut self, kind: Type, left: Left) -> Result<Decoded, Error> {
        let form = Form::Plain(kind);
        let mut parts = Parts::new();
        match kind {
            Type::String => self.string("a string").map(Decoded::String),
            Type::List | Type::Set => {
                self.members(form, left, |window| strings(window, &mut parts, 1))?;
                Ok(if kind == Type::List { Decoded::List(parts) } else { Decoded::Set(parts) })
            }
            Type::Hash => {
                self.members(form, left, |window| strings(window, &mut parts, 2))?;
                Ok(Decoded::Hash(parts))
            }
            Type::ZSet | Type::ZSetText => {
                let mut scores = Vec::new();
                self.members(form, left, |window| {
                    let bytes = strings(window, &mut parts, 1)?;
                    scores.push(window.read("a score", |reader| reader.score(kind))?);
                    Ok(bytes)
                })?;
                Ok(Decoded::ZSet(parts, scores))
            }
            Type::ListQuicklist | Type::ListQuicklist2 => {
                self.members(form, left, |window| {
                    let node = window.read("a list", |reader| {
                        let mut node = Parts::new();
                        reader.quicklist_node(kind, &mut node)?;
                        Ok(node)
                    })?;
                    parts.append(&node).map_err(|Corrupt| window.bad("an element is too long"))?;
                    Ok(parts.bytes())
                })?;
                Ok(Decoded::List(parts))
            }
            Type::HashZipmap
            | Type::ListZiplist
            | Type::SetIntset
            | Type::ZSetZiplist
            | Type::HashZiplist
            | Type::HashListpack
            | Type::ZSetListpack
            | Type::SetListpack => self.window.read("a collection", |reader| rdb::packed(kind, &reader.string()?)),
            Type::Stream1 | Type::Stream2 | Type::Stream3 => self.stream(version(kind)),
        }
    }

    fn stream(&mut self, version: Version) -> Result<Decoded, Error> {
        self.window.read("a stream", |reader| rdb::stream::read(reader, version))
    }

    /// The next part of a stream. The first one is returned as a value of its own.
    fn stream_part(&mut self, mut parts: Box<stream::Parts>, is_first: bool) -> Result<Piece, Error> {
        let (part, miscount, is_last) = parts.next(&mut self.window)?;
        self.state = if is_last { ReadState::EndOfKey } else { ReadState::Stream(parts) };
        let part = Box::new(part);
        Ok(if is_first { Piece::Value(Decoded::Stream(part, miscount)) } else { Piece::Stream(part, miscount) })
    }

    fn module_name(&mut self) -> Result<String, Error> {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        // Nine letters of 6 bits, and the version in the 10 bits below.
        let id = self.len("a module's number")?;
        Ok((0..9).rev().map(|nth| char::from(LETTERS[(id >> (10 + 6 * nth) & 63) as usize])).collect())
    }

    fn skip_module(&mut self) -> Result<(), Error> {
        loop {
            match self.len("a module's data")? {
                module::END => return Ok(()),
                module::SIGNED | module::UNSIGNED => _ = self.len("a module's number")?,
                module::FLOAT => _ = self.window.read("a module's number", |reader| reader.array::<4>())?,
                module::DOUBLE => _ = self.window.read("a module's number", |reader| reader.array::<8>())?,
                module::STRING => _ = self.string("a module's string")?,
                other => {
                    return Err(self.window.bad(format!("a module's data has a piece of the unknown type {other}")));
                }
            }
        }
    }

    fn end(&mut self) -> Result<Item, Error> {
        if self.version >= CHECKSUM_VERSION {
            let (offset, sum) = (self.window.offset(), self.window.sum());
            let told = self.window.read("the checksum", |reader| reader.array().map(u64::from_le_bytes))?;
            if self.checks && told != 0 && told != sum {
                let what = format!("the checksum is {told:016x}, but that of the bytes before it is {sum:016x}");
                return Err(Error::Bad { offset, what });
            }
        }
        Ok(Item::End)
    }
}

fn version(kind: Type) -> Version {
    match kind {
        Type::Stream1 => Version::V1,
        Type::Stream2 => Version::V2,
        _ => Version::V3,
    }
}

/// Reads one member of `count` strings. Returns the bytes of the piece so far.
fn strings<R: Read>(window: &mut Window<R>, parts: &mut Parts, count: usize) -> Result<usize, Error> {
    for _ in 0..count {
        let string = window.read("a member", |reader| reader.string().map(|string| string.into_owned()))?;
        parts.push(&string).map_err(|Corrupt| window.bad("a member is too long"))?;
    }
    Ok(parts.bytes())
}
