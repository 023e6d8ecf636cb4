//! Hostile: user code, file names, arguments and clients that mean harm, and a host that fails.
//!
//! Every release survives all of these. A name that ends with `…` is found by its beginning; the modules
//! `arguments`, `files`, `isolation`, `resources` and `service` are those below, the others lie beside this one.
//!
//! | What is tried | Test |
//! |---|---|
//! | **Files** | |
//! | A link to a file of the host or another workspace, or a directory of them in mid-path | `downloads::what_is_no_file_of_the_workspace…`, `files::a_link_out_of_the_workspace…` |
//! | Swapping file and link under 2,000 downloads | `files::a_file_swapped_for_a_link_while_2000_gets…` |
//! | A FIFO or socket in place of a file | `files::a_fifo_or_socket_in_use…` |
//! | `..` in all encodings, NUL, absolute paths, `//` | `downloads::what_is_no_file_of_the_workspace…` |
//! | HTML, SVG, XML that would run on our origin | `downloads::pages_and_drawings_are_downloaded…`, `browser::a_conversations_page…` |
//! | Names that would be markup of our own pages | `browser::a_conversations_page…`, `uploads::the_page_lets_nothing_in…` |
//! | Names with quotes, line breaks, emoji, RTL override, bytes that are not UTF-8, 255 bytes | `downloads::odd_names_round_trip…` |
//! | Ranges beyond the end, many, absurd | `downloads::a_file_is_served_whole_in_part…`, `files::an_absurd_range…` |
//! | A file cut, deleted or replaced while it is sent | `downloads::a_file_cut_short…`, `files::a_file_deleted_or_replaced…` |
//! | A sparse file of 1 TiB | `files::a_sparse_file_is_listed…` |
//! | A hash that is unknown, short, in upper case, not hexadecimal | `downloads::what_is_no_file_of_the_workspace…` |
//! | **Arguments** | |
//! | Upload names that climb, are absolute, empty or too long | `refusals::bad_arguments_are_refused…` |
//! | Uploads over a planted link, FIFO, socket or directory | `refusals::an_upload_never_goes_through…`, `uploads::an_upload_never_goes_through…`, `files::a_fifo_or_socket_in_use…` |
//! | Upload links that are guessed, used, or used twice at a time | `uploads::a_file_that_is_put…`, `uploads::an_upload_that_breaks_off…` |
//! | Uploads that are too long, say so or not, stop, break off, or are no form | `uploads::what_is_no_file_is_refused…`, `uploads::a_length_over_the_limit…`, `uploads::a_client_that_stops_sending…`, `uploads::an_upload_that_breaks_off…` |
//! | Conversations that are empty, a megabyte long, look like paths, are not ASCII | `arguments::a_conversation_is_hashed…`, `arguments::a_conversation_from_the_header…` |
//! | Bad base64, a wrong digest | `refusals::bad_arguments_are_refused…` |
//! | Time limits of 0, -1, 1e9, NaN, infinity | `refusals::bad_arguments_are_refused…`, `arguments::numbers_that_json_does_not_have…` |
//! | Environment names that are none | `refusals::bad_arguments_are_refused…` |
//! | `LD_PRELOAD`, `PATH`, `PYTHONPATH`, `NODE_OPTIONS` and their like | `arguments::an_environment_cannot_break_the_report…` |
//! | Code with CRLF, BOM, NUL, of 1 MB, with lone surrogates | `arguments::code_arrives_byte_for_byte`, `arguments::odd_code_has_the_meaning…`, `arguments::numbers_that_json_does_not_have…` |
//! | **Resources** | |
//! | Fork bombs, thread bombs | `resources::fork_and_thread_bombs…` |
//! | Memory bombs, killing oneself, exit code 137 | `resources::memory_kills_and_exit_codes…`, `runs::a_failing_program_is_an_outcome` |
//! | `/tmp` and `/dev/shm` filled | `resources::a_full_tmp_or_dev_shm…` |
//! | `/data` filled, in every way there is; the host's disk nearly full | `resources::a_full_data_ends_the_run…`, `resources::every_way_to_take_disk…`, `resources::a_disk_that_is_nearly_full…` |
//! | A million empty files | `resources::a_million_empty_files…` |
//! | Output without end | `resources::a_flood_of_output…`, `runs::long_output_keeps_head_and_tail` |
//! | All byte values, characters split in two | `resources::any_bytes_make_valid_json` |
//! | Sleeping for ever, ignoring signals | `resources::a_program_that_ignores_every_signal…`, `runs::a_run_is_stopped_when_its_time_is_up…` |
//! | A daemon that holds the output open | `resources::a_daemon_that_holds_the_output_open…` |
//! | Reading standard input | `resources::standard_input_is_at_its_end…` |
//! | A core dump | `resources::a_segmentation_fault…` |
//! | **Isolation** | |
//! | User, capabilities, privileges, seccomp | `isolation::a_program_has_no_way_out…`, `runs::a_run_has_exactly_one_hardened_container…` |
//! | Writing to the image, `/proc`, `/sys`, devices | `isolation::a_program_has_no_way_out…` |
//! | mount, unshare, ptrace, mknod, raw sockets and their like | `isolation::a_program_has_no_way_out…` |
//! | The engine's socket, paths of the host | `isolation::a_program_has_no_way_out…` |
//! | The server's secrets, from inside | `isolation::a_program_learns_none…` |
//! | Secrets and calls in the log, on labels and in descriptions | `isolation::the_log_at_its_most_talkative…`, `isolation::a_container_is_described…` |
//! | Another conversation's files and processes | `isolation::one_conversation_sees_nothing…`, `runs::files_persist_within_a_conversation…` |
//! | The network while it is off | `isolation::a_program_has_no_way_out…`, `isolation::the_network_fails_at_once…`, `runs::the_network_is_off…` |
//! | Forged result lines | `isolation::a_forged_result_line…` |
//! | **Service** | |
//! | A token that is missing, wrong, in other case, given twice (constant time: by `subtle`, not measured) | `service::only_one_exact_token…`, `refusals::a_wrong_token…` |
//! | A foreign Host or Origin | `mcp::a_foreign_host_or_origin…` |
//! | A body of 1 GB | `service::a_body_of_a_gigabyte…` |
//! | Slow headers and bodies | `service::clients_that_never_finish…` |
//! | JSON 100,000 deep, batches, huge ids | `service::deep_huge_and_odd_requests…`, `mcp::what_is_no_request…` |
//! | A caller that vanishes or cancels in mid-run | `mcp::a_cancelled_call…`, `service::a_program_whose_caller_vanished…`, `shutdown::a_client_that_goes_away…` |
//! | `kill -9` of the server in mid-run, beside another server | `service::a_server_killed_in_mid_run…` |
//! | An engine that stops, returns, is slow or hangs; an image that is missing | `service::an_engine_that_stops…`, `service::an_engine_that_hangs…`, `runners::an_image_without_labels…` |
//! | Very many calls at once, in one conversation and in many | `service::many_calls_at_once…`, `service::many_conversations_at_once…` |
//! | Waiting that would eat the run's time | `service::waiting_for_a_place…` |
//! | Expiry of a workspace in use | unit tests of `workspace::expiry` and `workspace::lease` |

mod arguments;
mod files;
mod isolation;
mod proxy;
mod resources;
mod service;

use std::time::{Duration, Instant};

/// Waits until `condition` holds; fails where that takes longer than `limit`.
async fn wait_until(what: &str, limit: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let asked = Instant::now();
    while !condition().await {
        assert!(asked.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What calls answer that are all made at the same time.
async fn at_once<T: Send + 'static>(
    calls: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let tasks: Vec<_> = calls.into_iter().map(tokio::spawn).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}
