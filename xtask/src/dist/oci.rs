//! The container image, as an archive of the OCI image layout (image-spec 1.1): one layer, the binary.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::tree::LICENCES;
use super::{Release, gzip, put, sha256};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Makes `latput-VERSION-ARCH-linux.oci.tar`.
pub fn make(release: &Release, parts: &Path) -> Result<PathBuf> {
    let root = parts.join("oci-root");
    put(&root.join("usr/bin/latput"), &fs::read(&release.binary)?, 0o755)?;
    for licence in LICENCES {
        let text = fs::read(release.workspace.root.join(licence))?;
        put(&root.join("usr/share/doc/latput").join(licence), &text, 0o644)?;
    }
    let tar = parts.join("layer.tar");
    release.tar(&root, &["usr"], &tar)?;
    let layout = parts.join("oci");
    let layer = parts.join("layer.tar.gz");
    gzip(&tar, &layer, release.compression)?;
    let layer = blob(&layout, &fs::read(layer)?, LAYER)?;
    let labels = json!({
        "org.opencontainers.image.title": "latput",
        "org.opencontainers.image.description": "Finds, proves and holds network-interface settings",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": release.revision,
        "org.opencontainers.image.created": release.created()?,
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
    });
    let config = json!({
        "created": release.created()?,
        "architecture": release.debian_arch,
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/latput"],
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(&tar)?)] },
        "history": [{ "created": release.created()?, "created_by": "cargo xtask dist" }],
    });
    let config = blob(&layout, &serde_json::to_vec(&config)?, CONFIG)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
        "annotations": labels,
    });
    let mut manifest = blob(&layout, &serde_json::to_vec(&manifest)?, MANIFEST)?;
    manifest["platform"] = json!({ "architecture": release.debian_arch, "os": "linux" });
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    put(&layout.join("index.json"), &serde_json::to_vec(&index)?, 0o644)?;
    put(&layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
    let archive = release.file("", ".oci.tar");
    release.tar(&layout, &["blobs", "index.json", "oci-layout"], &archive)?;
    Ok(archive)
}

/// Puts bytes where their sum says, and gives their descriptor.
fn blob(layout: &Path, bytes: &[u8], kind: &str) -> Result<Value> {
    let folder = layout.join("blobs/sha256");
    let unnamed = folder.join("unnamed");
    put(&unnamed, bytes, 0o644)?;
    let sum = sha256(&unnamed)?;
    fs::rename(&unnamed, folder.join(&sum))?;
    Ok(json!({ "mediaType": kind, "digest": format!("sha256:{sum}"), "size": bytes.len() }))
}
