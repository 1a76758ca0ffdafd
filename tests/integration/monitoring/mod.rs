//! `monitoring/`: the alerts and the dashboard, over what a real `redis_exporter` reads from every server; `scripts/rl-*`.

mod alerts;
mod dashboard;
mod prometheus;
mod queries;
mod tools;
mod top;
