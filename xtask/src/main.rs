//! What builds and checks this project and is better said in Rust than in a script: `cargo run -p xtask -- --help`.

#![forbid(unsafe_code)]

mod api;
mod commands;
mod cycles;
mod licences;
mod packages;
mod syntax;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
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
    /// Find modules of a crate that depend on each other
    Cycles {
        /// Directories with a src; all crates by default
        #[arg(value_name = "CRATE")]
        crates: Vec<PathBuf>,
    },
    /// Check the licence of every crate that is built on
    Licences,
    /// Package what can be published, and compile what is in the packages
    Packages,
    /// Find let chains in packages whose rust-version does not have them
    Syntax,
}

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the project");
    let done = match Arguments::parse().task {
        Task::Api { update } => api::check(root, update),
        Task::Cycles { crates } => cycles::check(root, &crates),
        Task::Licences => licences::check(root),
        Task::Packages => packages::check(root),
        Task::Syntax => syntax::check(root),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
