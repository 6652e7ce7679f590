//! Transcripts: help, usage errors and what would be sent. `TRYCMD=overwrite cargo test` rewrites them.

#[test]
fn transcripts_are_as_recorded() {
    trycmd::TestCases::new()
        .env("KUBECONFIG", "/no/such/kubeconfig")
        .env("HOME", "/no/such/home")
        .env("COLUMNS", "100")
        .case("tests/cli/*.trycmd");
}
