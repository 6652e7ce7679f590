//! Makes a CA that signs one leaf. Its key is forgotten, so that nothing else can ever be signed by it.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use time::OffsetDateTime;

use super::bundle::Pair;

/// Machines' clocks differ: a certificate is older than it is by this much.
const CLOCK_SKEW: time::Duration = time::Duration::minutes(5);

/// A leaf, and the CA that API servers must trust for it.
pub struct Issued {
    /// The leaf and its key.
    pub pair: Pair,
    /// PEM of the CA.
    pub authority: String,
}

/// A leaf for `names` (DNS names or addresses) that lives from `now` for `lifetime`.
///
/// # Errors
/// When a name is none.
pub fn issue(names: &[String], now: Timestamp, lifetime: Duration) -> Result<Issued, rcgen::Error> {
    let start = OffsetDateTime::from_unix_timestamp(now.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let mut authority = CertificateParams::default();
    authority
        .distinguished_name
        .push(DnType::CommonName, "ray-webhook");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let mut leaf = CertificateParams::new(names)?;
    leaf.distinguished_name.push(DnType::CommonName, "ray-webhook");
    leaf.is_ca = IsCa::ExplicitNoCa;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    for params in [&mut authority, &mut leaf] {
        params.not_before = start - CLOCK_SKEW;
        params.not_after = start + lifetime;
    }
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let certificate = leaf.signed_by(&key, &authority)?;
    Ok(Issued {
        pair: Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        },
        authority: authority.pem(),
    })
}
