//! Page: what a person sees of an upload: the form, the file that arrived, or why it did not.

use maud::{Markup, html};

use super::Problem;
use crate::{
    file::rfc3339,
    http::{
        page::{Page, icon},
        words,
    },
    uploads::Ticket,
    workspace::ReceivedFile,
};

/// Makes the form a place to drop the file on. Without it, the form is a form.
const SCRIPT: &str = include_str!("page.js");

/// The form for the file of `ticket`.
pub(super) fn form(ticket: &Ticket) -> Page {
    let name = words::name(&ticket.path.display());
    let content = html! {
        header {
            p.eyebrow { "Upload one file as" }
            h1 { bdi { (name) } }
            p.facts {
                span { "up to " (words::size(ticket.max_bytes)) }
                span {
                    "until "
                    time #until datetime=(rfc3339(ticket.expires_at)) { (words::time_of_day(ticket.expires_at)) }
                }
                span { "works once" }
            }
        }
        form method="post" enctype="multipart/form-data" data-max-bytes=(ticket.max_bytes) {
            label.drop for="file" {
                (icon("M12 16V4m-5 5 5-5 5 5M4 16v3a1 1 0 0 0 1 1h14a1 1 0 0 0 1-1v-3"))
                span.choose { "Choose the file" }
                span.scripted hidden { "or drop it here" }
            }
            input #file type="file" name="file" required;
            button type="submit" { "Upload" }
        }
        section #progress hidden {
            p #sending { "Uploading" }
            progress aria-labelledby="sending" max="1" value="0" {}
            button.button type="button" #cancel { "Cancel" }
        }
        p.problem #problem role="alert" hidden {}
        section.done #done role="status" hidden { (arrived("", "", "", "")) }
    };
    Page {
        title: format!("Upload {name}"),
        content,
        script: Some(SCRIPT),
    }
}

/// What is there now, and where.
pub(super) fn done(file: &ReceivedFile, link: &str) -> Page {
    let name = words::name(&file.entry.path.display());
    Page {
        title: format!("Uploaded {name}"),
        content: html! { section.done { (arrived(&name, &words::size(file.entry.size), &file.sha256, link)) } },
        script: None,
    }
}

fn arrived(name: &str, size: &str, sha256: &str, link: &str) -> Markup {
    html! {
        (icon("m5 13 4.5 4.5L19 7"))
        h2 { "The file has arrived" }
        div {
            p { bdi.name { (name) } " · " span.size { (size) } }
            p.digest { "SHA-256 " span { (sha256) } }
        }
        a.button href=(link) { "Open the file" }
        p.hint { "You can close this page and go back to the conversation." }
    }
}

/// Why nothing was uploaded.
pub(super) fn problem(problem: &Problem) -> Page {
    let content = html! {
        header {
            p.eyebrow { "Code sandbox" }
            h1 { (heading(problem)) }
        }
        @if problem.leaves_the_ticket() {
            p.problem { (sentence(&problem.to_string())) }
            p { a.button href="" { "Try again" } }
        } @else {
            p { "Upload links work once, and for a quarter of an hour. Ask for a new one in the conversation." }
        }
    };
    Page {
        title: heading(problem).to_owned(),
        content,
        script: None,
    }
}

fn heading(problem: &Problem) -> &'static str {
    match problem {
        Problem::Unknown => "This link does not work any more",
        _ => "The file was not uploaded",
    }
}

fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first: String = characters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    format!("{first}{}.", characters.as_str())
}
