//! Auth: the bearer token in front of everything that runs code or tells of it.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;

/// The token that callers must present.
#[derive(Debug, Clone)]
pub(super) struct Bearer {
    token: SecretString,
}

impl Bearer {
    pub(super) fn new(token: SecretString) -> Self {
        Self { token }
    }

    /// Whether the headers hold exactly one `Authorization: Bearer <token>` (RFC 6750).
    fn admits(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return false;
        };
        let Some((scheme, given)) = value.as_bytes().split_at_checked("Bearer ".len()) else {
            return false;
        };
        // Schemes are case-insensitive, tokens are not. The time taken tells the length at the most.
        scheme.eq_ignore_ascii_case(b"Bearer ")
            && bool::from(given.ct_eq(self.token.expose_secret().as_bytes()))
    }
}

/// Lets the request through or answers 401.
pub(super) async fn require(
    State(bearer): State<Bearer>,
    request: Request,
    next: Next,
) -> Response {
    if bearer.admits(request.headers()) {
        return next.run(request).await;
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
    fn exactly_one_right_token_is_admitted() {
        let bearer = Bearer::new("Secret".into());
        let admits = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            bearer.admits(&headers)
        };
        assert!(admits(&["Bearer Secret"]));
        assert!(admits(&["bearer Secret"]));
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
            assert!(!admits(refused), "{refused:?}");
        }
    }
}
