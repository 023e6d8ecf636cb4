//! Docs: what operators read agrees with what the code does.

use std::{collections::BTreeMap, fs, process::Command};

use mcp_code_sandbox::config::SETTINGS;

fn read(name: &str) -> String {
    fs::read_to_string(format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn settings() -> BTreeMap<String, String> {
    SETTINGS
        .iter()
        .map(|setting| (setting.name.to_owned(), setting.default.to_owned()))
        .collect()
}

#[test]
fn the_example_settings_are_the_codes() {
    let example: BTreeMap<_, _> = read(".env.example")
        .lines()
        .filter_map(|line| line.trim_start_matches("# ").split_once('='))
        .filter(|(name, _)| {
            name.bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        })
        .map(|(name, default)| (name.to_owned(), default.to_owned()))
        .collect();
    assert_eq!(example, settings());
}

#[test]
fn the_readmes_table_is_the_codes() {
    let table: BTreeMap<_, _> = read("README.md")
        .lines()
        .filter_map(|line| {
            let mut cells = line
                .strip_prefix("| `")?
                .split('|')
                .map(|cell| cell.trim().trim_matches('`').to_owned());
            Some((cells.next()?, cells.next()?))
        })
        .filter(|(name, _)| {
            name.bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        })
        .collect();
    assert_eq!(table, settings());
}

#[test]
fn help_lists_every_setting() {
    let output = Command::new(env!("CARGO_BIN_EXE_mcp-code-sandbox"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for setting in SETTINGS {
        assert!(
            help.contains(setting.name) && help.contains(setting.about),
            "{}",
            setting.name
        );
    }
}
