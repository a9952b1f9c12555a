//! The container image, as an archive of the OCI image layout (image-spec 1.1): one layer, the binary.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::tree::LICENCES;
use super::{ReleaseInfo, compress_file, compute_sha256, write_file};
use crate::workspace::remove_folder;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Makes `latput-VERSION-ARCH-linux.oci.tar`.
pub fn make_oci_image(release: &ReleaseInfo, parts: &Path) -> Result<PathBuf> {
    let layout = parts.join("oci");
    let manifest = add_image(release, &layout, parts)?;
    let archive = release.package_path("", ".oci.tar");
    pack_layout(release, &layout, manifest, &archive)?;
    Ok(archive)
}

/// Makes `latput-VERSION-linux.oci.tar` in `folder`: the images of all processors, in one index.
pub fn make_oci_index(releases: &[ReleaseInfo], folder: &Path) -> Result<PathBuf> {
    let first = releases.first().context("an index is of some images")?;
    let parts = folder.join("parts");
    remove_folder(&parts)?;
    let layout = parts.join("oci");
    let add = |release: &ReleaseInfo| {
        add_image(release, &layout, &parts.join(release.processor().kernel_name()))
    };
    let manifests = releases.iter().map(add).collect::<Result<Vec<_>>>()?;
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    let index = write_blob(&layout, &serde_json::to_vec(&index)?, INDEX)?;
    let archive = folder.join(format!("latput-{}-linux.oci.tar", first.version));
    pack_layout(first, &layout, index, &archive)?;
    remove_folder(&parts)?;
    Ok(archive)
}

/// Puts the image of one processor into a layout, and gives the descriptor of its manifest.
fn add_image(release: &ReleaseInfo, layout: &Path, parts: &Path) -> Result<Value> {
    let root = parts.join("oci-root");
    write_file(&root.join("usr/bin/latput"), &fs::read(&release.binary)?, 0o755)?;
    for licence in LICENCES {
        let text = fs::read(release.workspace.root.join(licence))?;
        write_file(&root.join("usr/share/doc/latput").join(licence), &text, 0o644)?;
    }
    let tar = parts.join("layer.tar");
    release.create_tar(&root, &["usr"], &tar)?;
    let layer = parts.join("layer.tar.gz");
    compress_file(&tar, &layer, release.compression)?;
    let layer = write_blob(layout, &fs::read(layer)?, LAYER)?;
    let labels = json!({
        "org.opencontainers.image.title": "latput",
        "org.opencontainers.image.description": "Finds, proves and holds network-interface settings",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": release.commit.revision,
        "org.opencontainers.image.created": release.format_commit_time()?,
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
    });
    let config = json!({
        "created": release.format_commit_time()?,
        "architecture": release.processor().debian_name(),
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
    let config = write_blob(layout, &serde_json::to_vec(&config)?, CONFIG)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
        "annotations": labels,
    });
    let mut manifest = write_blob(layout, &serde_json::to_vec(&manifest)?, MANIFEST)?;
    manifest["platform"] =
        json!({ "architecture": release.processor().debian_name(), "os": "linux" });
    Ok(manifest)
}

/// Names the image or index of this descriptor by the version, and packs the layout.
fn pack_layout(
    release: &ReleaseInfo,
    layout: &Path,
    mut content: Value,
    archive: &Path,
) -> Result<()> {
    content["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    let index = json!({ "schemaVersion": 2, "manifests": [content] });
    write_file(&layout.join("index.json"), &serde_json::to_vec(&index)?, 0o644)?;
    write_file(&layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;
    release.create_tar(layout, &["blobs", "index.json", "oci-layout"], archive)
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
