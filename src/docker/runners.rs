//! Runners: which images of the engine can run a language, by their labels.

use std::{
    collections::{BTreeMap, HashMap},
    future::ready,
    time::Duration,
};

use bollard::{
    Docker as Client,
    models::ImageSummary,
    query_parameters::{EventsOptions, ListImagesOptions},
};
use futures_util::{Stream, StreamExt as _, stream};
use jiff::Timestamp;
use tokio::time::sleep;

use super::{ASK_LIMIT, Engine};
use crate::{
    executor::BackendError,
    runner::{Protocol, Runner, Runners},
};

/// Time between two tries to hear from an engine that is gone.
const ENGINE_PAUSE: Duration = Duration::from_secs(2);

pub(super) async fn discover(
    engine: &Engine,
    extra: &BTreeMap<String, String>,
) -> Result<Runners, BackendError> {
    let labelled = HashMap::from([
        ("label".to_owned(), vec!["sandbox.runner=true".to_owned()]),
        // Earlier builds that lost their name to a newer one.
        ("dangling".to_owned(), vec!["false".to_owned()]),
    ]);
    let options = ListImagesOptions {
        filters: Some(labelled),
        ..ListImagesOptions::default()
    };
    let listing = engine.client.list_images(Some(options));
    let images = engine.within(ASK_LIMIT, "list images", listing).await?;
    let labelled = images.iter().filter_map(described_by_labels);
    let unlabelled = extra.iter().map(|(language, image)| Runner {
        language: language.clone(),
        aliases: Vec::new(),
        image: image.clone(),
        image_id: String::new(),
        version: None,
        packages: None,
        protocol: Protocol::Plain,
        install: Vec::new(),
        command: None,
        // The operator named it himself: it goes before any image that was merely found.
        created: i64::MAX,
    });
    Ok(Runners::new(labelled.chain(unlabelled).collect()))
}

/// Yields at once, when images come, go or change, and when the engine is gone or may be back. Never ends.
pub(super) fn changes(client: &Client) -> impl Stream<Item = ()> + Send {
    let filters = HashMap::from([("type".to_owned(), vec!["image".to_owned()])]);
    let client = client.clone();
    let mut since = Timestamp::now();
    let mut pause = Duration::ZERO;
    stream::repeat(())
        .map(move |()| {
            let before = sleep(std::mem::replace(&mut pause, ENGINE_PAUSE));
            let options = EventsOptions {
                since: Some(since.as_second().to_string()),
                filters: Some(filters.clone()),
                ..EventsOptions::default()
            };
            // Of what happens between the look at `before`'s end and the first event; events that are told
            // twice do no harm.
            since = Timestamp::now();
            let events = client
                .events(Some(options))
                .take_while(|event| ready(event.is_ok()));
            // At the end of these events the engine is gone, and perhaps back in a moment.
            let gone = stream::once(ready(()));
            stream::once(before).chain(events.map(|_| ())).chain(gone)
        })
        .flatten()
}

fn described_by_labels(image: &ImageSummary) -> Option<Runner> {
    let label = |name: &str| {
        image
            .labels
            .get(name)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    };
    let name = image.repo_tags.first().unwrap_or(&image.id);
    let Some(language) = label("sandbox.language") else {
        tracing::warn!(
            image = name,
            "image has the label sandbox.runner but no sandbox.language: not used"
        );
        return None;
    };
    let protocol = match label("sandbox.protocol") {
        None | Some("1") => Protocol::Plain,
        Some("2") => Protocol::Framed,
        Some(other) => {
            tracing::warn!(
                image = name,
                protocol = other,
                "image speaks an unknown protocol: not used"
            );
            return None;
        }
    };
    Some(Runner {
        language: language.to_lowercase(),
        aliases: label("sandbox.aliases")
            .unwrap_or_default()
            .split(',')
            .map(|alias| alias.trim().to_lowercase())
            .filter(|alias| !alias.is_empty())
            .collect(),
        // The name, not the id: the next container is of the image that has the name by then.
        image: name.clone(),
        image_id: image.id.clone(),
        version: label("sandbox.version").map(str::to_owned),
        packages: label("sandbox.packages").map(str::to_owned),
        protocol,
        install: label("sandbox.install")
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        command: None,
        created: image.created,
    })
}
