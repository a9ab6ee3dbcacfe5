//! The command line, for `coalesce-sim` and for programs that bring policies of their own.

use crate::contender::{Named, introduce};
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
    Run(crate::run::command::Command),
    Fuzz(crate::fuzz::command::Command),
    Replay(crate::replay::command::Command),
    Explain(crate::replay::explain::command::Command),
    Score(crate::score::command::Command),
    Contract(crate::contract::command::Command),
    Papers(crate::papers::command::Command),
    Calibrate(crate::calibrate::command::Command),
    Man(coalesce_cli::Man),
    Completions(coalesce_cli::Completions),
}

/// Does what the arguments of this program say. `own`: policies of one's own, which every command knows by their names beside
/// the others; `replay` and `score` compare them without being asked, `run` if its plan names them.
///
/// ```no_run
/// use coalesce_policy::{AnyPolicy, Policy, Spec};
/// use coalesce_sim::{command_line::run_with, contender::{Named, TICK_HZ}};
///
/// fn mine() -> Box<dyn Policy> {
///     Box::new(AnyPolicy::new(Spec::None, TICK_HZ).expect("any clock will do")) // or a type that implements Policy
/// }
///
/// # #[expect(clippy::needless_doctest_main, reason = "it is about the main function")]
/// fn main() -> std::process::ExitCode {
///     run_with(&[Named { name: "mine", policy: mine }])
/// }
/// ```
#[must_use]
pub fn run_with(own: &[Named]) -> ExitCode {
    let outcome = introduce(own).map_err(anyhow::Error::msg).and_then(|()| run(Cli::parse().command));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            coalesce_cli::say!("coalesce-sim: {error:#}"); // what was read may be quoted
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(command) => command.run(),
        Command::Fuzz(command) => command.run(),
        Command::Replay(command) => command.run(crate::calibrate::for_replay),
        Command::Explain(command) => command.run(),
        Command::Score(command) => command.run(),
        Command::Contract(command) => command.run(),
        Command::Papers(command) => command.run(),
        Command::Calibrate(command) => command.run(),
        Command::Man(command) => command.run::<Cli>().map_err(Into::into),
        Command::Completions(command) => {
            std::io::stdout().write_all(command.script::<Cli>().as_bytes()).map_err(Into::into)
        }
    }
}
