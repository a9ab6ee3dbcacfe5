//! The processes of the target, and what an operator and monitoring talk to: one process supervises, each disk has a confined one.

pub mod clients;
pub mod control;
pub mod control_client;
pub mod log;
pub mod metrics;
mod params;
pub mod sandbox;
pub mod supervisor;
pub mod worker;
