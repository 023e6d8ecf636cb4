//! Architecture: the walls between the parts of the source, as ARCHITECTURE.md draws them.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What only some parts of `src/` may name.
struct Wall {
    /// Paths of Rust, with everything in them.
    what: &'static [&'static str],
    /// Parts of `src/`: `docker` is `docker.rs` and `docker/`.
    within: &'static [&'static str],
    reason: &'static str,
}

const WALLS: [Wall; 9] = [
    Wall {
        what: &["bollard"],
        within: &["docker"],
        reason: "another engine must be able to take Docker's place behind `Backend`",
    },
    Wall {
        what: &["rmcp"],
        within: &["mcp"],
        reason: "runs and files know nothing of the protocol that asks for them",
    },
    Wall {
        what: &["axum"],
        within: &["http", "mcp/front", "server"],
        reason: "what is served is decided in one place, behind the token",
    },
    Wall {
        what: &[
            "dotenvy",
            "std::env::set_var",
            "std::env::var",
            "std::env::var_os",
            "std::env::vars",
            "std::env::vars_os",
        ],
        within: &["config"],
        reason: "a setting that is read elsewhere is in no list, no help and no check",
    },
    Wall {
        what: &["cap_std", "rustix::fs", "std::fs", "tokio::fs"],
        // `doctor` and `smoke` look from outside, as operators do; a user's own server keeps its secret beside its
        // settings; long output goes through a handle that the workspace has opened.
        within: &[
            "workspace",
            "config/personal",
            "doctor",
            "smoke",
            "executor/output",
        ],
        reason: "names in a workspace are hostile: only `workspace` knows how to open them",
    },
    Wall {
        what: &["prometheus"],
        within: &["metrics"],
        reason: "one list of what is counted, whichever library counts",
    },
    Wall {
        what: &["crate::docker"],
        within: &["docker", "sandbox", "server"],
        reason: "the executor and the tools know a `Backend`, whichever it is",
    },
    Wall {
        what: &["crate::mcp"],
        within: &["mcp", "http", "server"],
        reason: "runs and files know nothing of the protocol that asks for them",
    },
    Wall {
        what: &["crate::http"],
        within: &["http", "server"],
        reason: "requests come in from there; nothing below asks back",
    },
];

#[test]
fn what_a_part_knows_stays_within_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut crossings = Vec::new();
    for file in rust_files(&src) {
        let code = fs::read_to_string(&file).unwrap();
        let file = file.strip_prefix(&src).unwrap().to_str().unwrap();
        for (line, path) in paths(&code) {
            for wall in WALLS.iter().filter(|wall| wall.forbids(&path, file)) {
                crossings.push(format!(
                    "src/{file}:{line}: {path} belongs in {}, because {}",
                    wall.within.join(", "),
                    wall.reason
                ));
            }
        }
    }
    assert!(crossings.is_empty(), "\n{}\n", crossings.join("\n"));
}

#[test]
fn a_wall_that_nothing_stands_behind_is_a_typing_error() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let used: Vec<String> = rust_files(&src)
        .iter()
        .flat_map(|file| paths(&fs::read_to_string(file).unwrap()))
        .map(|(_, path)| path)
        .collect();
    for wall in &WALLS {
        assert!(
            used.iter().any(|path| wall.names(path)),
            "{:?} is used nowhere",
            wall.what
        );
        for part in wall.within {
            let exists = src.join(format!("{part}.rs")).is_file();
            assert!(exists, "src/{part}.rs does not exist");
        }
    }
}

#[test]
fn paths_are_found_however_they_are_written() {
    let code =
        "use a::{self, b::{c, d as e}, f};\n// use g::h;\nfn i() { j::k(); } // l::m\nuse n::o;";
    let expected = [
        (1, "a::self"),
        (1, "a::b::c"),
        (1, "a::b::d"),
        (1, "a::b::as"),
        (1, "a::b::e"),
        (1, "a::f"),
        (3, "j::k"),
        (4, "n::o"),
    ];
    assert_eq!(
        paths(code),
        expected.map(|(line, path)| (line, path.to_owned()))
    );
}

impl Wall {
    fn forbids(&self, path: &str, file: &str) -> bool {
        self.names(path) && !self.within.iter().any(|part| is_part(file, part))
    }

    fn names(&self, path: &str) -> bool {
        self.what.iter().any(|what| {
            path.strip_prefix(what)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        })
    }
}

fn is_part(file: &str, part: &str) -> bool {
    file.strip_prefix(part)
        .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Every path of the code with its line, those in the braces of a `use` written out. Comments are left out.
fn paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // What stands before each brace that is open: a path in a `use`, otherwise nothing.
    let mut open = vec![String::new()];
    for (number, line) in code.lines().enumerate() {
        let mut word = String::new();
        let code = line.split("//").next().unwrap_or_default();
        for character in code.chars().chain([' ']) {
            if character.is_alphanumeric() || "_:".contains(character) {
                word.push(character);
                continue;
            }
            let path = format!("{}{word}", open.last().map_or("", String::as_str));
            if path.contains("::") && !word.is_empty() && !word.ends_with(':') {
                found.push((number + 1, path.clone()));
            }
            match character {
                '{' if word.ends_with("::") => open.push(path),
                '{' => open.push(String::new()),
                '}' if open.len() > 1 => drop(open.pop()),
                _ => {}
            }
            word.clear();
        }
    }
    found
}
