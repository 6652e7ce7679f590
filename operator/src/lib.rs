//! The operator of kubectl-ray: four controllers that share a client, a lease and the admin endpoints.
//!
//! ```text
//!   cluster/   RayCluster    → pods, services, RBAC, ingress, status      (drop-in for KubeRay's)
//!   image/     ImageTemplate → kaniko Job → registry → status.image
//!   template/  lifts image gates, counts users, follows changes
//!   serve/     probes every pod's Serve proxy, keeps the label that the Serve service selects on
//!   helper/    what runs inside build pods: `ray-operator helper context|seal|…`
//! ```
//!
//! Each controller is `observe → build → plan → execute → status`; only `execute` and `status` write.

pub mod args;
pub mod cluster;
pub mod compat;
mod guard;
pub mod helper;
pub mod image;
pub mod lease;
pub mod run;
pub mod serve;
pub mod shared;
pub mod template;

pub use run::run;
