//! The shared vocabulary of kubectl-ray, and every decision that needs no I/O.
//!
//! ```text
//!   ray/       ray.io RayCluster as the cluster controller reads it
//!   template/  templates.ray.io ImageTemplate, ComputeTemplate, ClusterComputeTemplate
//!   expand/    (RayCluster JSON, templates) -> expanded JSON + record of what was filled
//!   image/     ImageTemplate -> Dockerfile, inputs hash; build log -> failure reason
//!   validate/  rules that webhook, operator and plugin share
//!   quantity   Kubernetes' quantities, exactly
//!   crds       the CustomResourceDefinitions, generated from these types by way of schema/
//! ```
//!
//! Nothing here knows a clock, a client or a runtime: callers pass `now` and what they read.

pub mod conditions;
pub mod crds;
pub mod duration;
pub mod expand;
pub mod image;
pub mod meta;
pub mod names;
pub mod quantity;
pub mod ray;
mod schema;
pub mod template;
pub mod validate;
