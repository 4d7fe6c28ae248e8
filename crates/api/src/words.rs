//! Owns the schema of choices that another crate names by a word, in the OpenAPI document. Never knows what a choice causes.

use base::{Codec, Policy};
use node::metrics::Unit;
use std::borrow::Cow;
use std::marker::PhantomData;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A choice with a word for each of its values.
pub trait Words {
    const NAME: &'static str;
    /// Empty: its name says it.
    const ABOUT: &'static str;
    const WORDS: &'static [&'static str];
}

impl Words for Policy {
    const NAME: &'static str = "Policy";
    const ABOUT: &'static str = "What happens to a write when neither RAM nor flash has room: maxmemory-policy. A new database has noeviction if none is given.";
    const WORDS: &'static [&'static str] = Policy::WORDS;
}

impl Words for Codec {
    const NAME: &'static str = "Codec";
    const ABOUT: &'static str = "What compresses values on flash. A new database has lz4 if none is given.";
    const WORDS: &'static [&'static str] = Codec::WORDS;
}

impl Words for Unit {
    const NAME: &'static str = "Unit";
    const ABOUT: &'static str = "";
    const WORDS: &'static [&'static str] = Unit::NAMES;
}

/// The type of a field that is one of these words.
pub struct WordOf<W>(PhantomData<W>);

pub type PolicyWord = WordOf<Policy>;
pub type CodecWord = WordOf<Codec>;
pub type UnitWord = WordOf<Unit>;

impl<W: Words> PartialSchema for WordOf<W> {
    fn schema() -> RefOr<Schema> {
        let word =
            ObjectBuilder::new().schema_type(Type::String).description((!W::ABOUT.is_empty()).then_some(W::ABOUT));
        word.enum_values(Some(W::WORDS.iter().copied())).build().into()
    }
}

impl<W: Words> ToSchema for WordOf<W> {
    fn name() -> Cow<'static, str> {
        W::NAME.into()
    }
}
