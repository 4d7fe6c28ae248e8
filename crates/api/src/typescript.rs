//! Owns console/src/lib/schema.ts: the types of an OpenAPI document in TypeScript. Never knows a route.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use utoipa::openapi::OpenApi;

const REFERENCE: &str = "#/components/schemas/";

/// console/src/lib/schema.ts.
pub fn api_ts(document: &OpenApi) -> String {
    let document = serde_json::to_value(document).unwrap_or_default();
    let empty = serde_json::Map::new();
    let schemas = document["components"]["schemas"].as_object().unwrap_or(&empty);
    let replied = replied(&document);
    let mut file = "// The types of the HTTP API, made of its OpenAPI document by\n\
                    // `cargo run -p flintkv-api --example api_ts > console/src/lib/schema.ts`. A test of the API holds it to that.\n"
        .to_owned();
    let sorted: BTreeMap<_, _> = schemas.iter().collect();
    for (name, schema) in sorted {
        file.push('\n');
        file.push_str(&comment(schema, ""));
        let is_reply = replied.contains(name);
        let _ = if schema["properties"].is_object() {
            writeln!(file, "export interface {name} {}", object(schema, is_reply, ""))
        } else if let Some(words) = schema["enum"].as_array() {
            // A list of choices becomes a union of string literals.
            let words: Vec<String> = words.iter().map(Value::to_string).collect();
            let words = words.join(", ");
            writeln!(file, "export const {name} = [{words}] as const;\nexport type {name} = (typeof {name})[number];")
        } else {
            writeln!(file, "export type {name} = {};", typed(schema, is_reply, ""))
        };
    }
    file
}

/// The names of the types that replies consist of. Their fields are always present, possibly as null.
fn replied(document: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let operations = document["paths"].as_object().into_iter().flatten().filter_map(|(_, path)| path.as_object());
    for (_, operation) in operations.flatten() {
        references(&operation["responses"], document, &mut names);
    }
    names
}

fn references(value: &Value, document: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = value.as_str().filter(|_| field == "$ref").and_then(|path| path.strip_prefix(REFERENCE));
                match name {
                    Some(name) if names.insert(name.to_owned()) => {
                        references(&document["components"]["schemas"][name], document, names);
                    }
                    _ => references(value, document, names),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, document, names)),
        _ => {}
    }
}

fn comment(schema: &Value, indent: &str) -> String {
    match schema["description"].as_str() {
        Some(about) => format!("{indent}/** {} */\n", about.replace('\n', " ").replace("*/", "* /")),
        None => String::new(),
    }
}

fn object(schema: &Value, is_reply: bool, indent: &str) -> String {
    let inner = format!("{indent}  ");
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut text = "{\n".to_owned();
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        let may_miss = if is_reply || required.contains(&field.as_str()) { "" } else { "?" };
        text.push_str(&comment(schema, &inner));
        let _ = writeln!(text, "{inner}{field}{may_miss}: {};", typed(schema, is_reply, &inner));
    }
    text + indent + "}"
}

fn typed(schema: &Value, is_reply: bool, indent: &str) -> String {
    let all = |schemas: &[Value]| schemas.iter().map(|schema| typed(schema, is_reply, indent)).collect::<Vec<_>>();
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix(REFERENCE)) {
        return name.to_owned();
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(Value::to_string).collect::<Vec<_>>().join(" | ");
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        return all(choices).join(" | ");
    }
    if let Some(items) = schema["prefixItems"].as_array() {
        return format!("[{}]", all(items).join(", "));
    }
    match &schema["type"] {
        Value::Array(kinds) => {
            let kinds: Vec<String> = kinds.iter().map(|kind| of_kind(schema, kind, is_reply, indent)).collect();
            kinds.join(" | ")
        }
        kind => of_kind(schema, kind, is_reply, indent),
    }
}

fn of_kind(schema: &Value, kind: &Value, is_reply: bool, indent: &str) -> String {
    match kind.as_str() {
        Some("integer" | "number") => "number".to_owned(),
        Some("string") => "string".to_owned(),
        Some("boolean") => "boolean".to_owned(),
        Some("null") => "null".to_owned(),
        Some("array") => {
            let item = typed(&schema["items"], is_reply, indent);
            if item.contains('|') && !item.starts_with('[') { format!("({item})[]") } else { format!("{item}[]") }
        }
        Some("object") if schema["properties"].is_object() => object(schema, is_reply, indent),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("Record<string, {}>", typed(&schema["additionalProperties"], is_reply, indent))
        }
        // What the document does not describe further.
        _ => "unknown".to_owned(),
    }
}
