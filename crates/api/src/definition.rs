//! Owns how a definition of a database appears in requests, replies and the OpenAPI document: as its fields' rows say. Never knows a database.

use crate::route::{Schemas, one};
use crate::words::{CodecWord, PolicyWord};
use config::definition::{Definition, DefinitionChange, FIELDS, Field, Form, NewDefinition};
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

#[derive(Deserialize)]
#[serde(transparent)]
pub struct NewDatabase(pub NewDefinition);

#[derive(Deserialize)]
#[serde(transparent)]
pub struct DatabaseChange(pub DefinitionChange);

#[derive(Serialize)]
pub struct DefinitionInfo {
    #[serde(flatten)]
    pub definition: Definition,
    pub has_password: bool,
}

/// A request with a field of another name is refused.
const NO_OTHERS: Option<AdditionalProperties<Schema>> = Some(AdditionalProperties::FreeForm(false));

impl PartialSchema for NewDatabase {
    fn schema() -> RefOr<Schema> {
        let name = typed(Form::Text, "Small letters, digits and dashes, 1 to 40".to_owned(), false);
        let about = |field: &Field| match field.texts.missing {
            "" => field.about.to_owned(),
            missing => format!("{}. Missing: {missing}", field.about),
        };
        let fields = object(|_| true, about, |field| !field.is_required);
        fields.property("name", name).required("name").additional_properties(NO_OTHERS).into()
    }
}

impl PartialSchema for DatabaseChange {
    fn schema() -> RefOr<Schema> {
        let about =
            |field: &Field| if field.texts.change.is_empty() { field.about } else { field.texts.change }.to_owned();
        object(|field| field.can_change, about, |_| true).additional_properties(NO_OTHERS).into()
    }
}

impl PartialSchema for DefinitionInfo {
    fn schema() -> RefOr<Schema> {
        let fields = object(|field| field.is_shown, |field| field.about.to_owned(), |field| field.form == Form::Path);
        fields.property("has_password", bool::schema()).required("has_password").into()
    }
}

impl ToSchema for NewDatabase {}
impl ToSchema for DatabaseChange {}
impl ToSchema for DefinitionInfo {
    /// The words, to which the requests refer too.
    fn schemas(schemas: &mut Schemas) {
        one::<PolicyWord>(schemas);
        one::<CodecWord>(schemas);
    }
}

fn object(has: fn(&Field) -> bool, about: fn(&Field) -> String, or_null: fn(&Field) -> bool) -> ObjectBuilder {
    FIELDS.iter().filter(|field| has(field)).fold(ObjectBuilder::new(), |object, field| {
        let or_null = or_null(field);
        let object = object.property(field.name, typed(field.form, about(field), or_null));
        if or_null { object } else { object.required(field.name) }
    })
}

/// A field's type. `or_null`: it may be missing, or null.
fn typed(form: Form, about: String, or_null: bool) -> RefOr<Schema> {
    let about = about + ".";
    let word = |name, about: String| {
        let mut word = Ref::from_schema_name(name);
        if or_null {
            let null = ObjectBuilder::new().schema_type(Type::Null);
            return OneOfBuilder::new().item(null).item(word).description(Some(about)).into();
        }
        word.description = about;
        word.into()
    };
    let mut schema = match form {
        Form::Policy => return word(PolicyWord::name(), about),
        Form::Codec => return word(CodecWord::name(), about),
        Form::Port => u16::schema(),
        Form::Number => u32::schema(),
        Form::Size | Form::RamLimit | Form::Time => u64::schema(),
        Form::Texts => Vec::<String>::schema(),
        Form::Text | Form::Path | Form::Password | Form::Persistence | Form::Replication | Form::Primary => {
            String::schema()
        }
    };
    let (kind, description) = match &mut schema {
        RefOr::T(Schema::Object(object)) => (&mut object.schema_type, &mut object.description),
        RefOr::T(Schema::Array(array)) => (&mut array.schema_type, &mut array.description),
        _ => return schema,
    };
    if let (SchemaType::Type(only), true) = (&*kind, or_null) {
        *kind = SchemaType::Array(vec![only.clone(), Type::Null]);
    }
    *description = Some(about);
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_removes_the_password_and_missing_keeps_it() {
        let change = |text| serde_json::from_str::<DatabaseChange>(text).unwrap().0.password;
        assert_eq!(change("{}"), None);
        assert_eq!(change("{\"password\":null}"), Some(None));
        assert_eq!(change("{\"password\":\"x\"}"), Some(Some("x".into())));
    }
}
