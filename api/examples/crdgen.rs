//! Writes the CRDs: `cargo run -p ray-api --example crdgen [FOLDER]`, `manifests/crds` where none is given.

use std::fs;
use std::path::PathBuf;

use ray_api::crds;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("manifests/crds"), PathBuf::from);
    for crd in crds::all() {
        fs::write(folder.join(crds::file_name(&crd)), serde_saphyr::to_string(&crd)?)?;
    }
    Ok(())
}
