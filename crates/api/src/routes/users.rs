//! Owns the administration of users and tokens. Never knows how they are stored.

use crate::auth::users::{ChosenPassword, TokenInfo, UserInfo};
use crate::auth::{By, Role};
use crate::cx::{Cx, Reply};
use crate::error::ApiError;
use crate::events::Event;
use crate::route::{Answer, Method, Route, list, one};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const ADMIN: Route = Route { role: Some(Role::Admin), tag: "Users", ..Route::BASE };

pub const ROUTES: &[Route] = &[
    Route {
        path: "/api/v1/users",
        summary: "All users.",
        reply: Answer::Json(list::<UserInfo>),
        run: |cx| Reply::json(&cx.app.users.cards()),
        ..ADMIN
    },
    Route {
        method: Method::Post,
        path: "/api/v1/users",
        summary: "Creates a user, who must change the password at the first login.",
        body: Some(one::<NewUser>),
        reply: Answer::Created(one::<UserInfo>),
        action: "user.create",
        run: create,
        ..ADMIN
    },
    Route {
        method: Method::Patch,
        path: "/api/v1/users/{name}",
        summary: "Changes a user's role or sets a new password; the user's sessions end.",
        body: Some(one::<UserChange>),
        reply: Answer::Json(one::<UserInfo>),
        action: "user.update",
        run: update,
        ..ADMIN
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/users/{name}",
        summary: "Deletes a user and ends the user's sessions. Tokens stay valid.",
        action: "user.delete",
        run: delete,
        ..ADMIN
    },
    Route {
        path: "/api/v1/tokens",
        summary: "All API tokens, without the tokens themselves.",
        reply: Answer::Json(list::<TokenInfo>),
        run: |cx| Reply::json(&cx.app.users.tokens()),
        ..ADMIN
    },
    Route {
        method: Method::Post,
        path: "/api/v1/tokens",
        summary: "Creates an API token, which is shown only once.",
        body: Some(one::<NewToken>),
        reply: Answer::Created(one::<MadeToken>),
        action: "token.create",
        run: create_token,
        ..ADMIN
    },
    Route {
        method: Method::Delete,
        path: "/api/v1/tokens/{id}",
        summary: "Deletes an API token.",
        action: "token.delete",
        run: delete_token,
        ..ADMIN
    },
];

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewUser {
    /// Letters, digits and -_.@
    name: String,
    role: Role,
    /// At least eight characters.
    password: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct UserChange {
    role: Option<Role>,
    password: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewToken {
    name: String,
    role: Role,
    /// Missing or null: never.
    expires_ms: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct MadeToken {
    id: String,
    name: String,
    role: Role,
    expires_ms: Option<u64>,
    /// Shown only now.
    token: String,
}

fn create(cx: &Cx) -> Result<Reply, ApiError> {
    let NewUser { name, role, password } = cx.body()?;
    cx.note(name.clone(), role.name());
    let card = cx.app.users.create(&name, role, &password, &cx.user(), cx.now_ms())?;
    cx.app.event(Event::info("user", "", format!("user '{name}' was created, {}", role.name())).by(cx.user()));
    Reply::created(&card)
}

fn update(cx: &Cx) -> Result<Reply, ApiError> {
    let UserChange { role, password } = cx.body()?;
    let name = cx.param("name");
    if role.is_none() && password.is_none() {
        return Err(ApiError::invalid("the request changes nothing").hint("send role or password"));
    }
    let changed = [role.map(|role| format!("role {}", role.name())), password.as_ref().map(|_| "password".to_owned())];
    cx.note(name, changed.into_iter().flatten().collect::<Vec<_>>().join(", "));
    let own = cx.who.as_ref().is_some_and(|who| who.name == name && who.token().is_none());
    // A token may have the same name as a user, but it is not that user.
    let by = match own {
        true => name.to_owned(),
        false => format!("{}{}", cx.user(), if cx.user() == name { " (token)" } else { "" }),
    };
    let password = password.as_deref().map(|password| ChosenPassword { password, by: &by, field: "password" });
    cx.app.users.set(name, role, password)?;
    let kept = match cx.who.as_ref().map(|who| &who.by) {
        Some(By::Session { cookie, .. }) if own => Some(cookie.as_str()),
        _ => None,
    };
    cx.app.sign_on.end_of(name, kept);
    let card = cx.app.users.card(name).ok_or_else(|| ApiError::not_found("the user no longer exists"))?;
    Ok(Reply { cookie: kept.map(|kept| super::session::renewed(cx, kept)), ..Reply::json(&card)? })
}

fn delete(cx: &Cx) -> Result<Reply, ApiError> {
    let name = cx.param("name");
    cx.app.users.delete(name)?;
    cx.app.sign_on.end_of(name, None);
    cx.app.event(Event::info("user", "", format!("user '{name}' was deleted")).by(cx.user()));
    Ok(Reply::none())
}

fn create_token(cx: &Cx) -> Result<Reply, ApiError> {
    let NewToken { name, role, expires_ms } = cx.body()?;
    cx.note(name.clone(), role.name());
    let (card, token) = cx.app.users.create_token(&name, role, expires_ms, &cx.user(), cx.now_ms())?;
    let TokenInfo { id, name, role, expires_ms, .. } = card;
    Reply::created(&MadeToken { id, name, role, expires_ms, token })
}

fn delete_token(cx: &Cx) -> Result<Reply, ApiError> {
    let card = cx.app.users.delete_token(cx.param("id"))?;
    cx.note(card.name, card.role.name());
    Ok(Reply::none())
}
