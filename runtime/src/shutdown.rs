//! One token for the whole process: cancelled by SIGTERM or SIGINT; a second signal exits at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code of a process that a second signal ended.
const EXIT_INTERRUPTED: i32 = 130;

/// A token that the first SIGTERM or SIGINT cancels.
///
/// # Errors
/// When the signal handlers cannot be installed.
pub fn token() -> std::io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let cancel = token.clone();
    tokio::spawn(async move {
        for first in [true, false] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if first {
                tracing::info!("shutting down; signal again to exit at once");
                cancel.cancel();
            } else {
                std::process::exit(EXIT_INTERRUPTED);
            }
        }
    });
    Ok(token)
}
