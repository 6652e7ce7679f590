//! `templates.ray.io/v1alpha1`.

mod compute;
mod image;

pub use compute::{
    ClusterComputeTemplate, ClusterComputeTemplateSpec, ComputeTemplate, ComputeTemplateSpec,
    ComputeTemplateStatus, UsedBy,
};
pub use image::{
    BuildCache, BuildFailure, BuildRecord, BuildStatus, FailureReason, ImageTemplate, ImageTemplateSpec,
    ImageTemplateStatus, PipOptions,
};
