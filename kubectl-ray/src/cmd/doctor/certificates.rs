//! How long the certificates of a bundle are good for.

use k8s_openapi::jiff::Timestamp;
use x509_parser::pem::Pem;

use super::Finding;

/// Warn so many days before the end: rotation should have happened by then.
const SOON_DAYS: i64 = 7;

/// When the last certificate of a PEM bundle expires.
pub(super) fn last_expiry(bundle: &[u8]) -> Result<Timestamp, String> {
    let mut last = None;
    for pem in Pem::iter_from_buffer(bundle) {
        let pem = pem.map_err(|error| error.to_string())?;
        let certificate = pem.parse_x509().map_err(|error| error.to_string())?;
        let end = Timestamp::from_second(certificate.validity().not_after.timestamp())
            .map_err(|e| e.to_string())?;
        last = last.max(Some(end));
    }
    last.ok_or_else(|| "there is no certificate in it".to_owned())
}

/// What an end means now.
pub(super) fn judge(subject: &str, expiry: Timestamp, now: Timestamp) -> Finding {
    let days = (expiry.as_second() - now.as_second()).div_euclid(24 * 3600);
    let fix = "the webhook renews it by itself: look at the logs of ray-webhook";
    match days {
        ..0 => Finding::problem(
            subject,
            format!("its certificate authority expired at {expiry}"),
            fix,
        ),
        0..=SOON_DAYS => Finding::warning(
            subject,
            format!("its certificate authority expires in {days} days"),
            fix,
        ),
        _ => Finding::ok(
            subject,
            format!("its certificate authority is good for {days} days"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::doctor::Grade;

    #[test]
    fn the_end_is_warned_of() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let grade = |days: i64| {
            judge(
                "w",
                Timestamp::from_second(1_000_000 + days * 86_400).unwrap(),
                now,
            )
            .grade
        };
        assert_eq!(
            [grade(-1), grade(3), grade(30)],
            [Grade::Problem, Grade::Warning, Grade::Ok]
        );
    }

    #[test]
    fn a_bundle_without_certificates_is_told() {
        assert!(last_expiry(b"").is_err());
    }
}
