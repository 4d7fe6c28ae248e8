//! Prints docs/commands.md.

fn main() {
    print!("{}", commands::docs::commands_md());
}
