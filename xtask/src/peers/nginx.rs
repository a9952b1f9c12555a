//! nginx for one object: its own configuration and files in a folder of ours, one process that is
//! ended by its id. Nothing of the host's nginx is read or run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::lab::SERVER_ADDRESS;
use crate::workspace::make_folder;

/// Size of the object that is downloaded.
pub const OBJECT_BYTES: usize = 1_000_000;

/// Writes the object and the configuration; returns their folder.
pub fn prepare_nginx(scratch: &Path, port: u16) -> Result<PathBuf> {
    let folder = scratch.join("bench-nginx");
    make_folder(&folder)?;
    fs::write(folder.join("object"), vec![b'x'; OBJECT_BYTES])
        .context("cannot write the object")?;
    fs::write(folder.join("nginx.conf"), render_config(&folder, port))
        .context("cannot write nginx.conf")?;
    Ok(folder)
}

/// One worker without a master, as latput has one thread at each end.
fn render_config(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "daemon off;\nmaster_process off;\nuser root;\npid {folder}/pid;\n\
         worker_rlimit_nofile 8192;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n\
         keepalive_requests 1000000;\n  keepalive_timeout 600s;\n\
         client_body_temp_path {folder}/body;\n  proxy_temp_path {folder}/proxy;\n\
         fastcgi_temp_path {folder}/fastcgi;\n  uwsgi_temp_path {folder}/uwsgi;\n\
         scgi_temp_path {folder}/scgi;\n\
         server {{ listen {SERVER_ADDRESS}:{port} backlog=4096; root {folder}; }}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_nginx_writes_is_in_the_folder() {
        let text = render_config(Path::new("/somewhere"), 8080);
        for line in text.lines().filter(|line| line.contains("_path") || line.contains("pid ")) {
            assert!(line.contains("/somewhere/"), "{line}");
        }
        assert!(text.contains("198.18.0.2:8080"));
    }
}
