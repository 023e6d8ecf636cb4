//! Engine: the Docker engine as an operator uses it, through its command line.

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;
use uuid::Uuid;

/// Runs `docker` and returns what it printed.
pub(crate) fn docker(arguments: &[&str]) -> String {
    let output = command(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "docker {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn command(arguments: &[&str]) -> Output {
    Command::new("timeout")
        .args(["120", "docker"])
        .args(arguments)
        // The builder that every engine has.
        .env("DOCKER_BUILDKIT", "0")
        .output()
        .expect("the docker command must be installed")
}

/// Something on the engine that goes when the test ends.
#[derive(Debug)]
pub(crate) struct Cleanup {
    remove: Vec<String>,
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        command(&self.remove.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

fn cleanup(remove: &[&str]) -> Cleanup {
    Cleanup {
        remove: remove.iter().map(ToString::to_string).collect(),
    }
}

/// A name nobody else uses.
pub(crate) fn unique_name(kind: &str) -> String {
    format!("test-{kind}-{}", Uuid::new_v4().simple())
}

/// A network of the test's own.
pub(crate) fn network() -> (String, Cleanup) {
    let name = unique_name("network");
    docker(&["network", "create", &name]);
    (name.clone(), cleanup(&["network", "rm", &name]))
}

/// A container of the test's own, started.
pub(crate) fn container(arguments: &[&str]) -> (String, Cleanup) {
    let name = unique_name("container");
    docker(&[&["run", "--detach", "--name", &name], arguments].concat());
    (name.clone(), cleanup(&["rm", "--force", &name]))
}

/// An image of the test's own, built from the directory `context`.
pub(crate) fn image(context: &Path) -> (String, Cleanup) {
    let name = unique_name("image");
    docker(&[
        "build",
        "--quiet",
        "--tag",
        &name,
        context.to_str().unwrap(),
    ]);
    (name.clone(), cleanup(&["image", "rm", "--force", &name]))
}

/// Names of all containers, running or not, of the server with that instance id.
pub(crate) fn containers_of(instance: &str) -> Vec<String> {
    let filter = format!("label=sandbox.owner={instance}");
    let names = docker(&["ps", "--all", "--filter", &filter, "--format", "{{.Names}}"]);
    names.lines().map(str::to_owned).collect()
}

/// Removes what is left of a server that may have been killed, when the test ends.
#[derive(Debug)]
pub(crate) struct Leftovers {
    /// Its instance id.
    pub(crate) instance: String,
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        for name in containers_of(&self.instance) {
            command(&["rm", "--force", &name]);
        }
    }
}

/// What the engine says of a container.
pub(crate) fn inspect(container: &str) -> Value {
    let all: Value = serde_json::from_str(&docker(&["inspect", container])).unwrap();
    all[0].clone()
}
