//! The Secret of token authentication: created once, never read.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use ray_api::meta::label;

use super::auth::{Auth, TOKEN_KEY};
use super::facts::Facts;
use super::owned;

/// The Secret with a new token, where the cluster wants one of ours.
///
/// `entropy` is 32 random bytes; what the cluster gets is their base64 text.
#[must_use]
pub fn auth_secret(facts: &Facts<'_>, entropy: &[u8; 32]) -> Option<Secret> {
    let Auth::OwnSecret(name) = &facts.auth else {
        return None;
    };
    let token = BASE64_STANDARD.encode(entropy).into_bytes();
    Some(Secret {
        metadata: owned(facts, name.clone(), &[(label::CLUSTER, facts.name)]),
        data: Some([(TOKEN_KEY.to_owned(), ByteString(token))].into()),
        ..Secret::default()
    })
}
