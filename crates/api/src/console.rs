//! Owns the files of the web console, which are part of the binary. Never knows their content.

use crate::error::ApiError;
use crate::middleware;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use axum::http::{Method, Response, StatusCode};
use rust_embed::{EmbeddedFile, RustEmbed};

#[derive(RustEmbed)]
#[folder = "console-dist"]
struct Files;

const INDEX: &str = "index.html";
/// The names of these files contain a hash of their content, so a file of a name never changes.
const HASHED: &str = "assets/";

/// A file by its path. Names without a dot are pages that index.html draws. Only embedded files can be found: the path
/// is a key here, not a path in a file system.
pub fn serve(request: &Request) -> Response<Body> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return middleware::refuse_method("GET, HEAD");
    }
    let path = request.uri().path().trim_start_matches('/');
    let is_page = !path.rsplit('/').next().unwrap_or("").contains('.');
    let name = if is_page { INDEX } else { path };
    let Some(file) = Files::get(name) else {
        return middleware::refuse(ApiError::not_found("there is no such file"));
    };
    let tag = etag(&file);
    let known = request.headers().get_all(IF_NONE_MATCH).iter().any(|value| value.as_bytes() == tag.as_bytes());
    let mut response = match known {
        true => Response::new(Body::empty()),
        false => Response::new(Body::from(file.data.into_owned())),
    };
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let caching = if name.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(CONTENT_TYPE, content_type(name));
    set(CACHE_CONTROL, caching);
    set(ETAG, &tag);
    response
}

fn etag(file: &EmbeddedFile) -> String {
    let hash = file.metadata.sha256_hash();
    format!("\"{}\"", hash[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or("") {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_what_a_build_makes() {
        for (name, kind) in [
            ("index.html", "text/html; charset=utf-8"),
            ("assets/index-4f2a.js", "text/javascript; charset=utf-8"),
            ("assets/a.b.css", "text/css; charset=utf-8"),
            ("noextension", "application/octet-stream"),
        ] {
            assert_eq!(content_type(name), kind);
        }
    }

    #[test]
    fn every_embedded_file_has_a_known_type() {
        for name in Files::iter() {
            assert_ne!(content_type(&name), "application/octet-stream", "{name}");
        }
        assert!(Files::get(INDEX).is_some());
    }
}
