//! Tells the program which commit it was built from.

use std::process::Command;

fn main() {
    for changes in [".git/HEAD", ".git/refs/heads"] {
        // Naming what is not there would have every build run this again.
        if std::path::Path::new(changes).exists() {
            println!("cargo::rerun-if-changed={changes}");
        }
    }
    println!("cargo::rerun-if-env-changed=COMMIT");
    // A build without the repository, such as an image's, is told by its environment.
    let commit = std::env::var("COMMIT")
        .ok()
        .filter(|commit| !commit.is_empty())
        .or_else(|| {
            let git = Command::new("git")
                .args(["rev-parse", "--short=12", "HEAD"])
                .output()
                .ok()?;
            let commit = String::from_utf8(git.stdout).ok()?;
            git.status.success().then(|| commit.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=COMMIT={commit}");
}
