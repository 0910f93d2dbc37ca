//! Packages that clients upload for jobs.

use crate::answer::{Answer, answer, not_found, text};
use crate::routes::{Request, Site};
use crate::uploads::{COMING_MAX, PACKAGE_BYTES_MAX};
use http::StatusCode;
use http_body_util::BodyExt as _;
use oxiray_ray_api::jobs::is_package;
use std::rc::Rc;

pub(crate) async fn get(site: Rc<Site>, request: Request) -> Answer {
    let [protocol, name] = [&request.named[0], &request.named[1]];
    if !is_package(protocol, name) {
        return not_found();
    }
    match site.uploads.find(name) {
        Some(_) => answer(StatusCode::OK, "application/octet-stream", ""),
        None => text(StatusCode::NOT_FOUND, format!("Package {protocol}://{name} does not exist")),
    }
}

pub(crate) async fn put(site: Rc<Site>, mut request: Request) -> Answer {
    if !is_package(&request.named[0], &request.named[1]) {
        return not_found();
    }
    let said = request.head.headers.get("content-length").and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|length| length > PACKAGE_BYTES_MAX) {
        return too_large();
    }
    let mut coming = match site.uploads.begin() {
        Some(Ok(coming)) => coming,
        Some(Err(error)) => return failed(&error),
        None => {
            return text(StatusCode::TOO_MANY_REQUESTS, format!("{COMING_MAX} packages come already: try again later"));
        }
    };
    while let Some(frame) = request.body.frame().await {
        let Ok(frame) = frame else { return text(StatusCode::BAD_REQUEST, "the package did not come whole") };
        let Ok(data) = frame.into_data() else { continue };
        match coming.add(&data) {
            Ok(true) => {}
            Ok(false) => return too_large(),
            Err(error) => return failed(&error),
        }
    }
    match coming.keep(&request.named[1]) {
        Ok(()) => answer(StatusCode::OK, "application/octet-stream", ""),
        Err(error) => failed(&error),
    }
}

fn too_large() -> Answer {
    let mut answer = text(StatusCode::PAYLOAD_TOO_LARGE, format!("a package may have {PACKAGE_BYTES_MAX} bytes"));
    answer.headers_mut().insert("connection", http::HeaderValue::from_static("close"));
    answer
}

fn failed(error: &std::io::Error) -> Answer {
    text(StatusCode::INTERNAL_SERVER_ERROR, format!("the package cannot be kept: {error}"))
}
