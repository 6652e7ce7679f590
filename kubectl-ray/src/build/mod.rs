//! From flags and file to the object that is sent: pure, so that `--dry-run=client` and tests see all of it.

mod cluster;
mod config;
mod group;
mod resources;

pub use cluster::{Style, cluster, worker_group};
pub use config::{AutoscalerConfig, AutoscalerVersion, ClusterConfig, GcsFuse, Gke, HeadConfig};
pub use group::GroupConfig;
pub use resources::Resources;

/// Version of Ray of a cluster that names neither version, nor image, nor ImageTemplate.
pub const DEFAULT_RAY_VERSION: &str = "2.60.0";
