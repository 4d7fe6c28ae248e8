//! The load generator alone, without the server: `cargo run --profile dist -p flintkv-bench --example bench -- --help`.

fn main() -> std::process::ExitCode {
    bench::cli::main(std::env::args_os().skip(1))
}
