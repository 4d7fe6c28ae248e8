//! The load generator alone, without the server: `cargo run --release --example bench -- --help`.

fn main() -> std::process::ExitCode {
    bench::cli::main(std::env::args_os().skip(1))
}
