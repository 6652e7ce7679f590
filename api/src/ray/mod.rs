//! `ray.io`: KubeRay's RayCluster, with our optional template references.

pub mod v1;
pub mod v1alpha1;

pub use v1::RayCluster;
