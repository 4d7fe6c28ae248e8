//! Prints docs/api.md.

fn main() {
    print!("{}", api::api_md());
}
