//! The CRDs on a real API server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

#[path = "crds/server.rs"]
mod server;

#[path = "crds/apply.rs"]
mod apply;
#[path = "crds/kubernetes_types.rs"]
mod kubernetes_types;
#[path = "crds/rules.rs"]
mod rules;
#[path = "crds/takeover.rs"]
mod takeover;
