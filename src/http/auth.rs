//! Auth: the bearer token in front of everything that runs code or tells of it.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;

use crate::caller::Caller;

/// The tokens that callers present.
#[derive(Debug, Clone)]
pub(super) struct Bearer {
    tokens: Arc<[(Caller, SecretString)]>,
}

impl Bearer {
    pub(super) fn new(tokens: &[(Caller, SecretString)]) -> Self {
        Self {
            tokens: tokens.into(),
        }
    }

    /// Who sends exactly one `Authorization: Bearer <token>` (RFC 6750).
    fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        let (scheme, given) = value.as_bytes().split_at_checked("Bearer ".len())?;
        // Schemes are case-insensitive, tokens are not.
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return None;
        }
        // All are compared, whichever fits: the time taken tells their lengths at the most.
        let fits = |token: &SecretString| bool::from(given.ct_eq(token.expose_secret().as_bytes()));
        self.tokens.iter().fold(None, |found, (caller, token)| {
            if fits(token) {
                Some(caller.clone())
            } else {
                found
            }
        })
    }
}

/// Lets the request through, with its [`Caller`], or answers 401.
pub(super) async fn require(
    State(bearer): State<Bearer>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(caller) = bearer.caller(request.headers()) {
        request.extensions_mut().insert(caller.clone());
        let mut response = next.run(request).await;
        // For the log.
        response.extensions_mut().insert(caller);
        return response;
    }
    let mut response =
        Response::new("the Authorization header must be: Bearer <MCP_API_TOKEN>\n".into());
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response.headers_mut().insert(
        header::WWW_AUTHENTICATE,
        HeaderValue::from_static("Bearer realm=\"mcp-code-sandbox\""),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_right_token_tells_who_calls() {
        let bearer = Bearer::new(&[
            (Caller::default(), "Secret".into()),
            (Caller::named("n8n").unwrap(), "Other".into()),
        ]);
        let caller = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            let caller = bearer.caller(&headers)?;
            Some(caller.as_str().to_owned())
        };
        assert_eq!(caller(&["Bearer Secret"]).unwrap(), "default");
        assert_eq!(caller(&["bearer Secret"]).unwrap(), "default");
        assert_eq!(caller(&["Bearer Other"]).unwrap(), "n8n");
        for refused in [
            &[][..],
            &["Secret"],
            &["Bearer"],
            &["Bearer "],
            &["Bearer secret"],
            &["Bearer Secret "],
            &["Bearer Secre"],
            &["Bearer Secret1"],
            &["Basic Secret"],
            &["Bearer Secret", "Bearer Secret"],
        ] {
            assert_eq!(caller(refused), None, "{refused:?}");
        }
    }
}
