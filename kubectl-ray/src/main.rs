//! `kubectl ray`, and its completer under the name `kubectl_complete-ray`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_ray::main(std::env::args_os())
}
