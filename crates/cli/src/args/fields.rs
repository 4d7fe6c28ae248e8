//! Owns the fields of a database's definition as options, made of their rows, and the options as a request's fields. Never knows a node.

use base::{Codec, Policy};
use clap::builder::{PossibleValuesParser, StringValueParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, value_parser};
use config::definition::{FIELDS, Field, Form};
use serde_json::{Map, Value};

use crate::{size, timestamp};

/// The options that were given: those of `create`, which makes a NEW database, or of `resize`.
#[derive(Debug, Clone)]
pub struct Fields<const NEW: bool> {
    /// As the API takes them, but for the next two.
    pub request: Map<String, Value>,
    pub ram_limit: Option<RamLimit>,
    /// Without a value, it is asked for.
    pub password: Option<Option<String>>,
}

/// `flintkv database resize` takes a password away with it.
const NO_PASSWORD: &str = "no-password";

/// Whether a field is an option of `create` or of `resize`. `replicate` and `promote` change whom a database follows.
pub fn is_option(field: &Field, is_new: bool) -> bool {
    is_new || field.can_change && field.form != Form::Primary
}

/// The fields that are options, in the help's order.
fn shown(is_new: bool) -> impl Iterator<Item = &'static Field> {
    let sections = ["Limits", "Endpoints", "Placement"].into_iter();
    let fields = sections.flat_map(|section| FIELDS.iter().filter(move |field| field.section == section));
    fields.filter(move |field| is_option(field, is_new))
}

fn option(field: &'static Field, is_new: bool) -> Arg {
    let (name, value) = field.option;
    let own = if is_new { field.texts.create } else { field.texts.resize };
    let help = match field.texts.missing {
        _ if !own.is_empty() => own.to_owned(),
        missing if is_new && !missing.is_empty() => format!("{} [default: {missing}]", field.about),
        _ => field.about.to_owned(),
    };
    let arg = Arg::new(field.name).long(name).value_name(value).help(help).value_parser(parser(field.form));
    let arg = if is_new { arg.help_heading(field.section) } else { arg };
    let arg = arg.required(is_new && field.is_required);
    match field.form {
        Form::Texts => arg.action(ArgAction::Append),
        Form::Path => arg.value_hint(ValueHint::FilePath),
        Form::Password => arg.num_args(0..=1).require_equals(true),
        Form::Time => arg.requires("from"),
        Form::Primary => arg.conflicts_with("from"),
        _ => arg,
    }
}

/// Reads what the API takes.
fn parser(form: Form) -> ValueParser {
    match form {
        Form::Port => value_parser!(u16).map(Value::from).into(),
        Form::Number => value_parser!(u32).map(Value::from).into(),
        Form::Size => size::parse.map(Value::from).into(),
        Form::RamLimit => value_parser!(RamLimit).into(),
        Form::Time => timestamp::parse.map(Value::from).into(),
        Form::Policy => PossibleValuesParser::new(Policy::WORDS).map(Value::from).into(),
        Form::Codec => PossibleValuesParser::new(Codec::WORDS).map(Value::from).into(),
        Form::Password => value_parser!(String),
        Form::Text | Form::Texts | Form::Path | Form::Persistence | Form::Replication | Form::Primary => {
            StringValueParser::new().map(Value::from).into()
        }
    }
}

impl<const NEW: bool> Args for Fields<NEW> {
    fn augment_args(command: Command) -> Command {
        shown(NEW).fold(command, |command, field| {
            let command = command.arg(option(field, NEW));
            if NEW || field.form != Form::Password {
                return command;
            }
            let flag = Arg::new(NO_PASSWORD).long(NO_PASSWORD).help("Remove the password");
            command.arg(flag.action(ArgAction::SetTrue).conflicts_with(field.name))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const NEW: bool> FromArgMatches for Fields<NEW> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut fields = Fields { request: Map::new(), ram_limit: None, password: None };
        for field in shown(NEW).filter(|field| matches.contains_id(field.name)) {
            match field.form {
                Form::RamLimit => fields.ram_limit = matches.get_one(field.name).copied(),
                Form::Password => fields.password = Some(matches.get_one(field.name).cloned()),
                form => {
                    let mut values: Vec<Value> = matches.get_many(field.name).into_iter().flatten().cloned().collect();
                    let value = if form == Form::Texts { Value::from(values) } else { values.remove(0) };
                    fields.request.insert(field.name.to_owned(), value);
                }
            }
        }
        if !NEW && matches.get_flag(NO_PASSWORD) {
            fields.request.insert("password".to_owned(), Value::Null);
        }
        Ok(fields)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The RAM limit: a size, or a percentage of the memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RamLimit {
    Bytes(u64),
    Percent(u32),
}

impl RamLimit {
    pub fn of(self, memory_limit: u64) -> u64 {
        match self {
            RamLimit::Bytes(bytes) => bytes,
            RamLimit::Percent(percent) => (u128::from(memory_limit) * u128::from(percent) / 100) as u64,
        }
    }
}

impl std::str::FromStr for RamLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<RamLimit, String> {
        let Some(percent) = text.strip_suffix('%') else {
            return size::parse(text).map(RamLimit::Bytes);
        };
        let percent = percent.trim().parse().ok().filter(|percent| (1..=100).contains(percent));
        percent.map(RamLimit::Percent).ok_or_else(|| format!("{text:?} is not a percentage from 1% to 100%"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_definition_is_an_option() {
        assert_eq!(shown(true).count(), FIELDS.len());
    }

    #[test]
    fn a_ram_limit_is_a_size_or_a_share() {
        let of = |text: &str| text.parse::<RamLimit>().map(|limit| limit.of(10 << 30));
        assert_eq!(of("3gb"), Ok(3 << 30));
        assert_eq!(of("30%"), Ok(3 << 30));
        assert_eq!("100%".parse::<RamLimit>().unwrap().of(u64::MAX), u64::MAX);
        for text in ["0%", "101%", "%", "x%", "30 gb", ""] {
            assert!(of(text).is_err(), "{text} was taken");
        }
    }
}
