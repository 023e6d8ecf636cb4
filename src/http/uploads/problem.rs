//! Problem: why an upload did not take place, as people and programs are told of it.

use axum::{
    Json,
    response::{IntoResponse as _, Response},
};
use http::StatusCode;
use serde_json::json;

use crate::{http::words, uploads::NoUpload, workspace::WorkspaceError};

/// Why an upload did not take place. The ticket is as good as before, where there is one.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("{}", NoUpload::Unknown)]
    Unknown,
    #[error("{}", NoUpload::InUse)]
    InUse,
    #[error("the file is too large: at most {} ({limit} bytes) can be uploaded here", words::size(*.limit))]
    TooLarge { limit: u64 },
    #[error(
        "there is no file in the request; send its bytes, as curl -T does, or choose one in the form"
    )]
    NoFile,
    #[error("{0}")]
    BadForm(&'static str),
    #[error("the upload broke off; try again")]
    BrokeOff,
    #[error("the upload came to a standstill or took too long; try again")]
    Slow,
    #[error(
        "the file's name leads through something that is not a directory of the conversation; ask for another one"
    )]
    NoSuchPlace,
    #[error("a directory has the file's name; ask for another one")]
    NotRegular,
    #[error(
        "there is no room for the file: the conversation's files may not take more; ask for some to be deleted"
    )]
    QuotaExceeded,
    #[error("there is no room for the file: the server's disk is nearly full; tell its operator")]
    DiskFull,
    #[error("the server failed to take the file; its log says why. Try again later")]
    Internal,
}

impl Problem {
    pub(super) fn too_large(limit: u64) -> Self {
        Self::TooLarge { limit }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.kind().0
    }

    pub(super) fn json(&self) -> Response {
        let (status, code) = self.kind();
        let error = json!({ "code": code, "message": self.to_string() });
        (status, Json(json!({ "success": false, "error": error }))).into_response()
    }

    /// Whether the same link can be tried again.
    pub(super) fn leaves_the_ticket(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    fn kind(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Unknown => (StatusCode::NOT_FOUND, "upload_not_found"),
            Self::InUse => (StatusCode::CONFLICT, "upload_in_use"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "file_too_large"),
            Self::NoFile | Self::BadForm(_) | Self::BrokeOff => {
                (StatusCode::BAD_REQUEST, "invalid_argument")
            }
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, "upload_timeout"),
            Self::NoSuchPlace => (StatusCode::CONFLICT, "file_not_found"),
            Self::NotRegular => (StatusCode::CONFLICT, "not_a_regular_file"),
            Self::QuotaExceeded | Self::DiskFull => {
                (StatusCode::INSUFFICIENT_STORAGE, "quota_exceeded")
            }
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }
}

impl From<NoUpload> for Problem {
    fn from(refused: NoUpload) -> Self {
        match refused {
            NoUpload::Unknown => Self::Unknown,
            NoUpload::InUse => Self::InUse,
        }
    }
}

impl From<WorkspaceError> for Problem {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::InvalidPath(_) | WorkspaceError::NotFound | WorkspaceError::InUse => {
                Self::NoSuchPlace
            }
            WorkspaceError::NotRegular => Self::NotRegular,
            WorkspaceError::QuotaExceeded => Self::QuotaExceeded,
            WorkspaceError::DiskFull => Self::DiskFull,
            WorkspaceError::Io(cause) => {
                tracing::error!(%cause, "upload failed");
                Self::Internal
            }
        }
    }
}
