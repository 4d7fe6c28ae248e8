//! Prints console/src/lib/schema.ts.

fn main() {
    print!("{}", api::api_ts());
}
