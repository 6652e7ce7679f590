//! What the certificate's Secret holds.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const SINCE: &str = "since";

/// A certificate and its private key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The leaf.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// What a certificate says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Start of its life.
    pub not_before: Timestamp,
    /// End of its life.
    pub not_after: Timestamp,
    /// Names and addresses that it is for.
    pub names: Vec<String>,
}

/// The Secret's content.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    /// What every replica serves.
    pub current: Option<Pair>,
    /// What every replica will serve.
    pub next: Option<Pair>,
    /// PEM of the CAs to trust, the newest first.
    pub authorities: Vec<String>,
    /// Time of the last step.
    pub since: Option<Timestamp>,
}

impl Pair {
    /// None where the certificate does not parse.
    #[must_use]
    pub fn facts(&self) -> Option<Facts> {
        let pem = Pem::iter_from_buffer(self.certificate.as_bytes()).next()?.ok()?;
        let certificate = pem.parse_x509().ok()?;
        let validity = certificate.validity();
        let names = certificate
            .subject_alternative_name()
            .ok()??
            .value
            .general_names
            .iter();
        Some(Facts {
            not_before: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
            not_after: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
            names: names.filter_map(name).collect(),
        })
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

impl Bundle {
    /// Reads a Secret; what does not read counts as absent.
    #[must_use]
    pub fn of(secret: &Secret) -> Self {
        let text = |key: &str| {
            let bytes = secret.data.as_ref()?.get(key)?;
            String::from_utf8(bytes.0.clone())
                .ok()
                .filter(|text| !text.is_empty())
        };
        let pair = |certificate, key| {
            Some(Pair {
                certificate: text(certificate)?,
                key: text(key)?,
            })
        };
        Self {
            current: pair(CERTIFICATE, KEY),
            next: pair(NEXT_CERTIFICATE, NEXT_KEY),
            authorities: text(AUTHORITIES).map(|pems| split(&pems)).unwrap_or_default(),
            since: text(SINCE).and_then(|since| since.parse().ok()),
        }
    }

    /// Puts it into a Secret whose other keys stay.
    pub fn write_to(&self, secret: &mut Secret) {
        let mut data = secret.data.take().unwrap_or_default();
        let values = [
            (
                CERTIFICATE,
                self.current.as_ref().map(|pair| pair.certificate.clone()),
            ),
            (KEY, self.current.as_ref().map(|pair| pair.key.clone())),
            (
                NEXT_CERTIFICATE,
                self.next.as_ref().map(|pair| pair.certificate.clone()),
            ),
            (NEXT_KEY, self.next.as_ref().map(|pair| pair.key.clone())),
            (
                AUTHORITIES,
                (!self.authorities.is_empty()).then(|| self.authorities.concat()),
            ),
            (SINCE, self.since.map(|since| since.to_string())),
        ];
        for (key, value) in values {
            set(&mut data, key, value);
        }
        secret.data = Some(data);
    }
}

fn set(data: &mut BTreeMap<String, ByteString>, key: &str, value: Option<String>) {
    match value {
        Some(value) => data.insert(key.to_owned(), ByteString(value.into_bytes())),
        None => data.remove(key),
    };
}

/// One PEM each.
fn split(pems: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----\n";
    pems.split_inclusive(END)
        .filter(|pem| pem.ends_with(END))
        .map(str::to_owned)
        .collect()
}
