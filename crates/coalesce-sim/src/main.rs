//! The command line.

use clap::{Parser, Subcommand};
use std::io::Write as _;
use std::process::ExitCode;

/// Simulate interrupt coalescing policies, or replay a trace under each of them
#[derive(Parser)]
#[command(version = coalesce_cli::VERSION, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(coalesce_sim::run::command::Command),
    Fuzz(coalesce_sim::fuzz::command::Command),
    Replay(coalesce_sim::replay::command::Command),
    Explain(coalesce_sim::replay::explain::command::Command),
    Score(coalesce_sim::score::command::Command),
    Contract(coalesce_sim::contract::command::Command),
    Papers(coalesce_sim::papers::command::Command),
    Calibrate(coalesce_sim::calibrate::command::Command),
    Man(coalesce_cli::Man),
    Completions(coalesce_cli::Completions),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(command) => command.run(),
        Command::Fuzz(command) => command.run(),
        Command::Replay(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Score(command) => command.run(),
        Command::Contract(command) => command.run(),
        Command::Papers(command) => command.run(),
        Command::Calibrate(command) => command.run(),
        Command::Man(command) => command.run::<Cli>().map_err(Into::into),
        Command::Completions(command) => {
            std::io::stdout().write_all(command.script::<Cli>().as_bytes()).map_err(Into::into)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = format!("coalesce-sim: {error:#}"); // what was read may be quoted
            eprintln!("{}", coalesce_cli::printable(&text));
            ExitCode::FAILURE
        }
    }
}
