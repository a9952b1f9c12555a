//! The container image, as an archive of the OCI image layout (image-spec 1.1): one layer, the binary.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::tree::LICENCES;
use super::{ReleaseInfo, compress_file, compute_sha256, write_file};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Makes `latput-VERSION-ARCH-linux.oci.tar`.
pub fn make_oci_image(release: &ReleaseInfo, parts: &Path) -> Result<PathBuf> {
    let root = parts.join("oci-root");
    write_file(&root.join("usr/bin/latput"), &fs::read(&release.binary)?, 0o755)?;
    for licence in LICENCES {
        let text = fs::read(release.workspace.root.join(licence))?;
        write_file(&root.join("usr/share/doc/latput").join(licence), &text, 0o644)?;
    }
    let tar = parts.join("layer.tar");
    release.create_tar(&root, &["usr"], &tar)?;
    let layout = parts.join("oci");
    let layer = parts.join("layer.tar.gz");
    compress_file(&tar, &layer, release.compression)?;
    let layer = write_blob(&layout, &fs::read(layer)?, LAYER)?;
    let labels = json!({
        "org.opencontainers.image.title": "latput",
        "org.opencontainers.image.description": "Finds, proves and holds network-interface settings",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": release.revision,
        "org.opencontainers.image.created": release.format_commit_time()?,
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
    });
    let config = json!({
        "created": release.format_commit_time()?,
        "architecture": release.debian_arch,
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/latput"],
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", compute_sha256(&tar)?)] },
        "history": [{ "created": release.format_commit_time()?, "created_by": "cargo xtask dist" }],
    });
    let config = write_blob(&layout, &serde_json::to_vec(&config)?, CONFIG)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
        "annotations": labels,
    });
    let mut manifest = write_blob(&layout, &serde_json::to_vec(&manifest)?, MANIFEST)?;
    manifest["platform"] = json!({ "architecture": release.debian_arch, "os": "linux" });
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    write_file(&layout.join("index.json"), &serde_json::to_vec(&index)?, 0o644)?;
    write_file(&layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
    let archive = release.package_path("", ".oci.tar");
    release.create_tar(&layout, &["blobs", "index.json", "oci-layout"], &archive)?;
    Ok(archive)
}

/// Puts bytes where their sum says, and gives their descriptor.
fn write_blob(layout: &Path, bytes: &[u8], kind: &str) -> Result<Value> {
    let folder = layout.join("blobs/sha256");
    let unnamed = folder.join("unnamed");
    write_file(&unnamed, bytes, 0o644)?;
    let sum = compute_sha256(&unnamed)?;
    fs::rename(&unnamed, folder.join(&sum))?;
    Ok(json!({ "mediaType": kind, "digest": format!("sha256:{sum}"), "size": bytes.len() }))
}
