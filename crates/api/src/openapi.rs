//! Owns the OpenAPI document and docs/api.md, both made from the rows of the routes that it is given. Never knows a request.

use crate::auth::Role;
use crate::error::Failure;
use crate::route::{Answer, Kind, Route, Schemas, one};
use std::collections::BTreeMap;
use std::fmt::Write;
use utoipa::openapi::path::{OperationBuilder, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    ComponentsBuilder, Content, InfoBuilder, OpenApi, OpenApiBuilder, PathsBuilder, RefOr, Required, ResponseBuilder,
};

const INTRODUCTION: &str = "\
Sizes are bytes, times are milliseconds since 1970 (`*_ms`), latencies microseconds (`*_us`). Text that may be binary is a \
string if it is UTF-8 and `{\"base64\": \"…\"}` otherwise; both are accepted.

Log in with POST /api/v1/session: the cookie that it sets identifies the session, and requests that change something need the \
header `X-CSRF-Token` with the session's `csrf`. Programs use a token of POST /api/v1/tokens as `Authorization: Bearer fkv_…`.

In a cluster, `/api/v1/nodes/{node}/…` is answered by the node with this name or id as its own `/api/v1/…`, whatever the method: the node that is \
asked checks who asks, and the other one checks the role and writes the audit log, with the name of the first. Sessions are the exception: they \
are asked of the node that is asked first.

Roles: a viewer reads; an operator also changes databases, keys, clients, benchmarks and alerts; an admin also users, tokens and \
configuration.";

pub fn document(routes: impl Iterator<Item = &'static Route>) -> OpenApi {
    let mut schemas = Schemas::new();
    let mut paths = PathsBuilder::new();
    for route in routes {
        let operation = operation(route, &mut schemas);
        paths = paths.path(route.path, PathItem::new(route.method.openapi(), operation));
    }
    one::<Failure>(&mut schemas);
    let mut components = ComponentsBuilder::new()
        .security_scheme("session", SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::new("flintkv_session"))))
        .security_scheme("token", SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build()));
    for (name, schema) in schemas {
        components = components.schema(name, schema);
    }
    let info = InfoBuilder::new().title("FlintKV").version(env!("CARGO_PKG_VERSION")).description(Some(INTRODUCTION));
    OpenApiBuilder::new().info(info.build()).paths(paths).components(Some(components.build())).build()
}

fn operation(route: &Route, schemas: &mut Schemas) -> utoipa::openapi::path::Operation {
    let mut operation = OperationBuilder::new()
        .tag(route.tag)
        .summary(Some(route.summary))
        .operation_id(Some(operation_id(route)))
        .description(Some(match route.role {
            None => "Anybody.".to_owned(),
            Some(role) => format!("Role: {}.", role.name()),
        }));
    for name in path_params(route.path) {
        operation = operation.parameter(
            ParameterBuilder::new()
                .name(name)
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .schema(Some(ObjectBuilder::new().schema_type(Type::String))),
        );
    }
    for param in route.query {
        let kind = match param.kind {
            Kind::Text => Type::String,
            Kind::Number => Type::Integer,
            Kind::Decimal => Type::Number,
            Kind::Flag => Type::Boolean,
        };
        operation = operation.parameter(
            ParameterBuilder::new()
                .name(param.name)
                .parameter_in(ParameterIn::Query)
                .required(Required::False)
                .description(Some(param.about))
                .schema(Some(ObjectBuilder::new().schema_type(SchemaType::new(kind)))),
        );
    }
    if let Some(body) = route.body {
        let content = Content::new(Some(body(schemas)));
        let body = RequestBodyBuilder::new().content("application/json", content).required(Some(Required::True));
        operation = operation.request_body(Some(body.build()));
    }
    let (status, content) = match route.reply {
        Answer::None => ("204", None),
        Answer::Json(shape) => ("200", Some(("application/json", Content::new(Some(shape(schemas)))))),
        Answer::Created(shape) => ("201", Some(("application/json", Content::new(Some(shape(schemas)))))),
        Answer::Text(kind) => ("200", Some((kind, Content::new(None::<RefOr<Schema>>)))),
    };
    let mut response = ResponseBuilder::new().description(route.summary);
    if let Some((kind, content)) = content {
        response = response.content(kind, content);
    }
    operation = operation.response(status, response.build());
    if let Some(planned) = route.dry_run_reply {
        // A status has one schema: where the reply itself is a 200, it is one of the two.
        let schema = match route.reply {
            Answer::Json(done) => {
                Schema::OneOf(OneOfBuilder::new().item(done(schemas)).item(planned(schemas)).build()).into()
            }
            _ => planned(schemas),
        };
        let response = ResponseBuilder::new().description("With dry_run, of a cluster: what would be");
        operation = operation.response("200", response.content("application/json", Content::new(Some(schema))).build());
    }
    let failure = Content::new(Some(one::<Failure>(schemas)));
    let failure = ResponseBuilder::new().description("The error, and what to do").content("application/json", failure);
    operation = operation.response("default", failure.build());
    if route.role.is_some() {
        operation = operation
            .security(SecurityRequirement::new::<_, [String; 0], String>("session", []))
            .security(SecurityRequirement::new::<_, [String; 0], String>("token", []));
    }
    operation.build()
}

/// `get_databases_name_keys`
fn operation_id(route: &Route) -> String {
    let path = route.path.trim_start_matches("/api/v1").replace(['{', '}'], "").replace(['/', '-', '.'], "_");
    format!("{}{path}", route.method.name().to_lowercase())
}

pub fn path_params(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// The document as bytes.
pub fn json(routes: impl Iterator<Item = &'static Route>) -> Vec<u8> {
    serde_json::to_vec(&document(routes)).unwrap_or_default()
}

/// docs/api.md.
pub fn api_md(routes: impl Iterator<Item = &'static Route> + Clone) -> String {
    let document = serde_json::to_value(document(routes.clone())).unwrap_or_default();
    let mut page = format!(
        "# HTTP API\n\n\
         Generated from the routes' rows: `cargo run -p flintkv-api --example api_md > docs/api.md`. A running node serves the \
         same as an OpenAPI document at `/api/v1/openapi.json`.\n\n{INTRODUCTION}\n\n\
         An error is always `{{\"error\": {{\"code\", \"message\", \"hint\", \"fields\": [{{\"field\", \"message\"}}]}}}}` with \
         status 400 (invalid), 401 (unauthenticated), 403 (forbidden), 404 (not_found), 409 (exists, busy), 413 (too_large), \
         422 (unsupported, no_room), 429 (rate_limited, with Retry-After), 500 (failed), 502 (unreachable: another node), 503 (stopping) or 504 (timeout).\n"
    );
    let mut tags: Vec<&str> = Vec::new();
    for route in routes.clone() {
        if !tags.contains(&route.tag) {
            tags.push(route.tag);
        }
    }
    for tag in tags {
        let _ = write!(
            page,
            "\n## {tag}\n\n| route | role | what it does | body | reply |\n| --- | --- | --- | --- | --- |\n"
        );
        for route in routes.clone().filter(|route| route.tag == tag) {
            let operation = &document["paths"][route.path][route.method.name().to_lowercase()];
            let body = &operation["requestBody"]["content"]["application/json"]["schema"];
            let (status, reply) = match route.reply {
                Answer::None => ("204", String::new()),
                Answer::Text(kind) => ("", format!("`{kind}`")),
                Answer::Json(_) => ("", shown(&operation["responses"]["200"]["content"]["application/json"]["schema"])),
                Answer::Created(_) => {
                    ("201 ", shown(&operation["responses"]["201"]["content"]["application/json"]["schema"]))
                }
            };
            let planned = match (route.dry_run_reply, &route.reply) {
                (None, _) | (_, Answer::Json(_)) => String::new(),
                _ => {
                    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
                    format!("; `dry_run`: {}", shown(schema))
                }
            };
            let query: Vec<String> =
                route.query.iter().map(|param| format!("`{}`: {}", param.name, param.about)).collect();
            let query = if query.is_empty() { String::new() } else { format!(" Query: {}.", query.join("; ")) };
            let _ = writeln!(
                page,
                "| {} `{}` | {} | {}{query} | {} | {status}{reply}{planned} |",
                route.method.name(),
                route.path,
                route.role.map_or("–", Role::name),
                route.summary,
                if body.is_null() { String::new() } else { shown(body) },
            );
        }
    }
    page.push_str("\n## Types\n");
    let empty = serde_json::Map::new();
    let schemas = document["components"]["schemas"].as_object().unwrap_or(&empty);
    let sorted: BTreeMap<_, _> = schemas.iter().collect();
    for (name, schema) in sorted {
        let _ = write!(page, "\n### {name}\n\n");
        if let Some(about) = schema["description"].as_str() {
            let _ = write!(page, "{}\n\n", about.replace('\n', " "));
        }
        match schema["properties"].as_object() {
            Some(properties) => {
                page.push_str("| field | type | |\n| --- | --- | --- |\n");
                let required = schema["required"].as_array().cloned().unwrap_or_default();
                for (field, schema) in properties {
                    let may_miss = if required.iter().any(|name| name == field) { "" } else { "?" };
                    let about = schema["description"].as_str().unwrap_or("").replace('\n', " ");
                    let _ =
                        writeln!(page, "| `{field}{may_miss}` | {} | {} |", shown(schema), about.replace('|', "\\|"));
                }
            }
            None => {
                let _ = writeln!(page, "{}", shown(schema));
            }
        }
    }
    page
}

/// A schema in a few words.
fn shown(schema: &serde_json::Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(|word| format!("`{word}`").replace('"', "")).collect::<Vec<_>>().join(", ");
    }
    for either in ["oneOf", "anyOf", "allOf"] {
        if let Some(choices) = schema[either].as_array() {
            return choices.iter().map(shown).collect::<Vec<_>>().join(" or ");
        }
    }
    if let Some(items) = schema["prefixItems"].as_array() {
        return format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", "));
    }
    match &schema["type"] {
        serde_json::Value::Array(kinds) => {
            let kinds: Vec<String> = kinds
                .iter()
                .map(|kind| {
                    let mut one = schema.clone();
                    one["type"] = kind.clone();
                    shown(&one)
                })
                .collect();
            kinds.join(" or ")
        }
        serde_json::Value::String(kind) if kind == "array" => format!("list of {}", shown(&schema["items"])),
        serde_json::Value::String(kind) if kind == "object" && !schema["additionalProperties"].is_null() => {
            format!("object of {}", shown(&schema["additionalProperties"]))
        }
        serde_json::Value::String(kind) => kind.clone(),
        _ => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes;

    /// A type's name must mean one schema in the whole document.
    #[test]
    fn no_schema_name_has_two_meanings() {
        let mut schemas = Schemas::new();
        routes::all().for_each(|route| drop(operation(route, &mut schemas)));
        let mut known: BTreeMap<String, serde_json::Value> = BTreeMap::new();
        for (name, schema) in schemas {
            let schema = serde_json::to_value(schema).unwrap();
            assert_eq!(*known.entry(name.clone()).or_insert_with(|| schema.clone()), schema, "{name}");
        }
        // Every reference must point to an existing schema.
        let text = String::from_utf8(json(routes::all())).unwrap();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(known.contains_key(name) || name == "Failure", "{name}");
        }
    }
}
