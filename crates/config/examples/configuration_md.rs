//! Prints docs/configuration.md.

fn main() {
    print!("{}", config::configuration_md());
}
