//! docs/api.md equals what the routes' rows give.

#[test]
fn the_page_in_docs_is_that_of_the_routes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
    let page = std::fs::read_to_string(path).expect("docs/api.md is there");
    assert!(
        page == api::api_md(),
        "docs/api.md is out of date: cargo run -p flintkv-api --example api_md > docs/api.md"
    );
}
