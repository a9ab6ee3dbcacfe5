//! The command line.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Simulate interrupt coalescing policies, or replay a trace under each of them
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(coalesce_sim::run::command::Command),
    Fuzz(coalesce_sim::fuzz::command::Command),
    Replay(coalesce_sim::replay::command::Command),
    Score(coalesce_sim::score::command::Command),
    Papers(coalesce_sim::papers::command::Command),
    Calibrate(coalesce_sim::calibrate::command::Command),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(command) => command.run(),
        Command::Fuzz(command) => command.run(),
        Command::Replay(command) => command.run(),
        Command::Score(command) => command.run(),
        Command::Papers(command) => command.run(),
        Command::Calibrate(command) => command.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coalesce-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
