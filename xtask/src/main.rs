//! What builds and checks this project and is better said in Rust than in a script: `cargo run -p xtask -- --help`.

#![forbid(unsafe_code)]

mod api;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(about, version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Compare the public API of the published libraries with xtask/api/*.txt
    Api {
        /// Write it there
        #[arg(long)]
        update: bool,
    },
}

fn main() -> ExitCode {
    let Arguments { task: Task::Api { update } } = Arguments::parse();
    match api::check(update) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
