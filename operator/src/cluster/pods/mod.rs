//! The Ray pods of all clusters, as one watch shows them, and what this process did that the watch has not
//! shown yet.

mod index;
mod view;

pub use index::{ClusterKey, Feed, PodIndex};
pub use view::{NodeType, Phase, PodView, RayState, WatchedPod};
