//! The admission webhook of kubectl-ray: AdmissionReview in, JSON patch or denial out.
//!
//! ```text
//!   server       TLS, paths, limits, timeouts
//!   admit/       one file for each question: mutate a RayCluster, validate it, validate a template
//!   templates    caches of the template kinds; a live GET on a miss
//!   access       may this user use that template? (option)
//!   certificate/ self-signed into a Secret and the configurations' caBundle, or mounted files
//! ```
//!
//! All decisions are `ray-api`'s; the plugin makes the same ones without a webhook.

pub mod access;
pub mod admit;
pub mod args;
pub mod certificate;
pub mod metrics;
mod run;
pub mod server;
pub mod templates;

pub use run::run;
