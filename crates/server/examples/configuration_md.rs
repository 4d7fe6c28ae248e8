//! Prints docs/configuration.md.

fn main() {
    print!("{}", server::config::configuration_md());
}
