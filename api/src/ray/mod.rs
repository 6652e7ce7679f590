//! `ray.io`: KubeRay's RayCluster, with our optional template references.

pub mod v1;

pub use v1::RayCluster;
