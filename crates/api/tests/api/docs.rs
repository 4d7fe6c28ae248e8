//! docs/api.md and the console's types are what the routes say.

#[test]
fn the_page_in_docs_is_that_of_the_routes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
    let page = std::fs::read_to_string(path).expect("docs/api.md is there");
    assert!(
        page == api::api_md(),
        "docs/api.md is out of date: cargo run -p flintkv-api --example api_md > docs/api.md"
    );
}

#[test]
fn the_types_of_the_console_are_those_of_the_routes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../console/src/lib/schema.ts");
    let file = std::fs::read_to_string(path).expect("schema.ts is there");
    assert!(
        file == api::api_ts(),
        "schema.ts is out of date: cargo run -p flintkv-api --example api_ts > console/src/lib/schema.ts"
    );
}
