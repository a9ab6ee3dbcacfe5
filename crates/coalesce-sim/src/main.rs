//! `coalesce-sim` with the policies of this project.

use std::process::ExitCode;

fn main() -> ExitCode {
    coalesce_sim::command_line::run_with(&[])
}
