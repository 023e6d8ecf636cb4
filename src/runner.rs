//! Runner: an image that can run one language. This is its description; containers are the backend's.

use std::collections::BTreeMap;

use crate::package::Package;

/// How a runner takes code and says how it ended. See `runners/README.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Source on standard input until its end; streams and exit status are the program's.
    Plain,
    /// One line of JSON, then the source; an exit line at the end.
    Framed,
}

impl Protocol {
    /// Its number in the label `sandbox.protocol`.
    pub fn number(self) -> u8 {
        match self {
            Self::Plain => 1,
            Self::Framed => 2,
        }
    }
}

/// An image that can run one language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runner {
    /// The language's name, lower case.
    pub language: String,
    /// Other names of it.
    pub aliases: Vec<String>,
    /// What the backend calls the image.
    pub image: String,
    /// What the name stands for now: another one after a build.
    pub image_id: String,
    /// Version of the language, for people and models.
    pub version: Option<String>,
    /// What can be imported, for people and models.
    pub packages: Option<String>,
    /// How it takes code.
    pub protocol: Protocol,
    /// Command line of its package installer, to be followed by packages; empty where it has none.
    pub install: Vec<String>,
    /// What is started in place of the image's own entrypoint.
    pub command: Option<Vec<String>>,
    /// Seconds since 1970; of two images of one language the newer one runs.
    pub created: i64,
}

impl Runner {
    /// The same image as one that installs `packages` and takes no code; `None` where it has no installer.
    pub fn installer(&self, packages: &[Package]) -> Option<Self> {
        let mut command = self.install.clone();
        if command.is_empty() {
            return None;
        }
        command.extend(packages.iter().map(Package::to_string));
        Some(Self {
            protocol: Protocol::Plain,
            command: Some(command),
            ..self.clone()
        })
    }
}

/// The runners there are, by language, the one that runs first.
#[derive(Debug, Default)]
pub struct Runners {
    all: Vec<Runner>,
}

impl Runners {
    /// Puts `all` in order.
    pub fn new(mut all: Vec<Runner>) -> Self {
        all.sort_by(|a, b| a.language.cmp(&b.language).then(b.created.cmp(&a.created)));
        Self { all }
    }

    /// The runner of the language that is called `name`, its own name or an alias, in any case.
    pub fn find(&self, name: &str) -> Option<&Runner> {
        let name = name.trim().to_lowercase();
        let by_name = self.all.iter().find(|runner| runner.language == name);
        by_name.or_else(|| {
            self.all
                .iter()
                .find(|runner| runner.aliases.contains(&name))
        })
    }

    /// The runner of each language that runs.
    pub fn in_use(&self) -> impl Iterator<Item = &Runner> {
        self.all
            .chunk_by(|a, b| a.language == b.language)
            .filter_map(<[_]>::first)
    }

    /// Every runner, those of one language newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Runner> {
        self.all.iter()
    }

    /// The languages, each once, with their aliases.
    pub fn languages(&self) -> BTreeMap<&str, &[String]> {
        self.all
            .iter()
            .rev()
            .map(|runner| (runner.language.as_str(), runner.aliases.as_slice()))
            .collect()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(language: &str, aliases: &[&str], image: &str, created: i64) -> Runner {
        Runner {
            language: language.into(),
            aliases: aliases.iter().map(ToString::to_string).collect(),
            image: image.into(),
            image_id: String::new(),
            version: None,
            packages: None,
            protocol: Protocol::Plain,
            install: Vec::new(),
            command: None,
            created,
        }
    }

    #[test]
    fn the_newest_image_of_a_language_runs_and_all_are_listed() {
        let runners = Runners::new(vec![
            runner("python", &["py"], "old", 1),
            runner("python", &["py"], "new", 2),
            runner("bash", &["sh"], "bash", 1),
        ]);
        for name in ["python", "PY", " Python "] {
            assert_eq!(runners.find(name).unwrap().image, "new");
        }
        assert_eq!(runners.find("ruby"), None);
        assert_eq!(
            runners
                .iter()
                .map(|runner| runner.image.as_str())
                .collect::<Vec<_>>(),
            ["bash", "new", "old"]
        );
    }

    #[test]
    fn a_language_goes_before_an_alias_of_the_same_name() {
        let runners = Runners::new(vec![
            runner("a", &["b"], "alias", 2),
            runner("b", &[], "name", 1),
        ]);
        assert_eq!(runners.find("b").unwrap().image, "name");
    }
}
