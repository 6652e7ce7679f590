//! `ray.io`: KubeRay's RayCluster, with our optional template references.

pub mod v1;
mod version;

pub use v1::RayCluster;
pub use version::RayVersion;
