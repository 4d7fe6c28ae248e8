//! Owns the shape of a route: everything that is known of it without a request. Beside its handler, in its area's file; the
//! router, the OpenAPI document, docs/api.md and the tests are all read from the rows. Never knows a request.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::schema::{ArrayBuilder, Schema};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

pub struct Route {
    pub method: Method,
    /// With `{name}` where a segment is free.
    pub path: &'static str,
    /// None: anybody.
    pub role: Option<Role>,
    pub tag: &'static str,
    pub summary: &'static str,
    pub query: &'static [Param],
    pub body: Option<Shape>,
    pub reply: Answer,
    /// What the audit log calls it; empty for what changes nothing.
    pub action: &'static str,
    /// Answered by the console's own thread, at once: nothing in it may block.
    pub inline: bool,
    /// Blocking is fine unless `inline`: it runs on a thread of its own.
    pub run: fn(&Cx) -> Result<Reply, ApiError>,
}

impl Route {
    pub const BASE: Route = Route {
        method: Method::Get,
        path: "",
        role: Some(Role::Viewer),
        tag: "",
        summary: "",
        query: &[],
        body: None,
        reply: Answer::None,
        action: "",
        inline: false,
        run: |_| unreachable!("every route names its handler"),
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub const fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }

    pub fn openapi(self) -> HttpMethod {
        match self {
            Method::Get => HttpMethod::Get,
            Method::Post => HttpMethod::Post,
            Method::Put => HttpMethod::Put,
            Method::Patch => HttpMethod::Patch,
            Method::Delete => HttpMethod::Delete,
        }
    }
}

/// A parameter of the query.
pub struct Param {
    pub name: &'static str,
    pub kind: Kind,
    pub about: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Number,
    Flag,
}

pub const fn text(name: &'static str, about: &'static str) -> Param {
    Param { name, kind: Kind::Text, about }
}

pub const fn number(name: &'static str, about: &'static str) -> Param {
    Param { name, kind: Kind::Number, about }
}

pub const fn flag(name: &'static str, about: &'static str) -> Param {
    Param { name, kind: Kind::Flag, about }
}

/// Schemas with their names, as they are met.
pub type Schemas = Vec<(String, RefOr<Schema>)>;
/// Notes a type's schemas and refers to it.
pub type Shape = fn(&mut Schemas) -> RefOr<Schema>;

pub enum Answer {
    /// 204.
    None,
    Json(Shape),
    /// 201.
    Created(Shape),
    Text(&'static str),
}

pub fn one<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
    Ref::from_schema_name(T::name()).into()
}

pub fn list<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    let item = one::<T>(schemas);
    Schema::Array(ArrayBuilder::new().items(item).build()).into()
}

/// For what has no name of its own: maps, values of every kind.
pub fn plain<T: PartialSchema>(_: &mut Schemas) -> RefOr<Schema> {
    T::schema()
}
