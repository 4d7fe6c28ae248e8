//! Owns the type of a route: everything about it that does not depend on a request. Each row is beside its handler. The
//! router, the OpenAPI document, docs/api.md and the tests read the rows. Never knows a request.

use crate::auth::Role;
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use utoipa::openapi::path::HttpMethod;
use utoipa::openapi::schema::{ArrayBuilder, Schema};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

pub struct Route {
    pub method: Method,
    /// With `{name}` for a variable segment.
    pub path: &'static str,
    /// `None`: no login needed.
    pub role: Option<Role>,
    pub tag: &'static str,
    pub summary: &'static str,
    pub query: &'static [Param],
    pub body: Option<Shape>,
    pub reply: Answer,
    /// The reply to `dry_run`, if it is another one.
    pub dry_run_reply: Option<Shape>,
    /// The name in the audit log. Empty for routes that change nothing.
    pub action: &'static str,
    /// The handler runs directly on the console's own thread, so it must not block, and must not wait for a disk.
    pub inline: bool,
    /// May block unless `inline`: it runs on a thread of its own.
    pub run: fn(&Cx) -> Result<Reply, ApiError>,
}

/// Of a body, if the route takes one: usually it is the value of a key.
pub const BODY_BYTES_MAX: usize = 8 << 20;
/// Of what anybody may send, as a login does, and of a body where none is expected.
const SMALL_BODY_BYTES_MAX: usize = 16 << 10;

impl Route {
    /// The largest body that is received. Everybody can send as many bodies as there are connections, so only those who
    /// have logged in may send large ones.
    pub fn body_bytes_max(&self) -> usize {
        if self.role.is_some() && self.body.is_some() { BODY_BYTES_MAX } else { SMALL_BODY_BYTES_MAX }
    }

    pub const BASE: Route = Route {
        method: Method::Get,
        path: "",
        role: Some(Role::Viewer),
        tag: "",
        summary: "",
        query: &[],
        body: None,
        reply: Answer::None,
        dry_run_reply: None,
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
    /// A number with a fraction.
    Decimal,
    Flag,
}

pub const fn text(name: &'static str, about: &'static str) -> Param {
    Param { name, kind: Kind::Text, about }
}

pub const fn number(name: &'static str, about: &'static str) -> Param {
    Param { name, kind: Kind::Number, about }
}

pub const fn decimal(name: &'static str, about: &'static str) -> Param {
    Param { name, kind: Kind::Decimal, about }
}

pub const fn flag(name: &'static str, about: &'static str) -> Param {
    Param { name, kind: Kind::Flag, about }
}

/// Schemas and their names, collected on the way.
pub type Schemas = Vec<(String, RefOr<Schema>)>;
/// Records a type's schemas and refers to it.
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

/// The shape of types without a schema name: maps, and values of any type.
pub fn plain<T: PartialSchema>(_: &mut Schemas) -> RefOr<Schema> {
    T::schema()
}
