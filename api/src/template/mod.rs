//! `templates.ray.io`: the reusable objects that RayClusters refer to by name.

pub mod v1alpha1;

pub use v1alpha1::{
    ClusterComputeTemplate, ComputeTemplate, ComputeTemplateSpec, ImageTemplate, ImageTemplateSpec,
};
