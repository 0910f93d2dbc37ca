//! What the page changes by hand: tasks that are cancelled, actors that are killed, nodes and devices that are drained or put back.
//!
//! - ACTS-1: who may only read changes nothing, and a request says that its body is JSON: another site's page cannot send one.

use super::views::{failed, wrong};
use crate::answer::{Answer, json, text, unanswered};
use crate::page_api::body;
use crate::routes::{Request, Route, Site, route};
use http::StatusCode;
use oxiray_ids::{ActorId, TaskId};
use oxiray_network::porch::Right;
use oxiray_visitor::{Question, VisitError, json as state_json};
use oxiray_wire::message::{DeviceAction, DeviceAsked, DrainAsked, EndAsked, StateReport};
use serde_json::{Value as Json, json};
use std::rc::Rc;

/// Why something is done, as the head tells it.
const REASON: &str = "on the dashboard's page";
/// The longest time until a drained node ends, in seconds.
const DEADLINE_S_MAX: f64 = 1e9;

/// The paths.
pub(crate) const ROUTES: &[Route] = &[
    route!("POST", "/ox/v1/tasks/{}/cancel", cancel_task),
    route!("POST", "/ox/v1/actors/{}/kill", kill_actor),
    route!("POST", "/ox/v1/nodes/{}/drain", drain_node),
    route!("POST", "/ox/v1/nodes/{}/keep", keep_node),
    route!("POST", "/ox/v1/devices/{}/{}/{}/drain", drain_device),
    route!("POST", "/ox/v1/devices/{}/{}/{}/undrain", undrain_device),
    route!("POST", "/ox/v1/devices/{}/{}/{}/check", check_device),
];

/// What the request says, where it may change something (ACTS-1).
pub(crate) async fn said(request: &mut Request) -> Result<Json, Answer> {
    if request.right != Right::All {
        return Err(text(StatusCode::FORBIDDEN, "Forbidden: this key only reads"));
    }
    body(request).await
}

/// Has the head do it, and tells what came of it.
async fn ordered<Q: Question<Answer = StateReport>>(site: &Site, asked: Q) -> Answer {
    match site.daemon.ask(asked).await {
        Ok(report) => match state_json::check(report.version) {
            Ok(()) => json(&told(&report)),
            Err(error) => unanswered(&VisitError::from(error)),
        },
        Err(error) => failed(&error),
    }
}

/// What came of an order, for the page.
fn told(report: &StateReport) -> Json {
    let left = report.drained.as_ref().and_then(|drained| drained.left.as_ref());
    json!({"done": true, "processes": report.ended.as_ref().map(|ended| ended.processes), "left": left})
}

/// The first thing that the path names.
fn first(request: &Request) -> &str {
    request.named.first().map(String::as_str).unwrap_or_default()
}

async fn cancel_task(site: Rc<Site>, mut request: Request) -> Answer {
    if let Err(answer) = said(&mut request).await {
        return answer;
    }
    match TaskId::from_hex(first(&request)) {
        Ok(task) => ordered(&site, EndAsked { task: Some(task), reason: REASON.into(), ..EndAsked::default() }).await,
        Err(_) => wrong(format!("{} is no task's identifier", first(&request))),
    }
}

async fn kill_actor(site: Rc<Site>, mut request: Request) -> Answer {
    if let Err(answer) = said(&mut request).await {
        return answer;
    }
    match ActorId::from_hex(first(&request)) {
        Ok(actor) => {
            ordered(&site, EndAsked { actor: Some(actor), reason: REASON.into(), ..EndAsked::default() }).await
        }
        Err(_) => wrong(format!("{} is no actor's identifier", first(&request))),
    }
}

/// In how many milliseconds a node is to end at the latest; nothing where it may take as long as it takes.
fn deadline(said: &Json) -> Result<Option<u64>, String> {
    match &said["seconds"] {
        Json::Null => Ok(None),
        seconds => match seconds.as_f64().filter(|seconds| (0.0..DEADLINE_S_MAX).contains(seconds)) {
            Some(seconds) => Ok(Some((seconds * 1_000.0) as u64)),
            None => Err(format!("seconds={seconds} is no number of seconds from now, such as 120")),
        },
    }
}

async fn drain_node(site: Rc<Site>, mut request: Request) -> Answer {
    let said = match said(&mut request).await {
        Ok(said) => said,
        Err(answer) => return answer,
    };
    match deadline(&said) {
        Ok(deadline_ms) => {
            let (node, reason) = (first(&request).to_owned(), REASON.to_owned());
            ordered(&site, DrainAsked { node, deadline_ms, reason, ..DrainAsked::default() }).await
        }
        Err(why) => wrong(why),
    }
}

async fn keep_node(site: Rc<Site>, mut request: Request) -> Answer {
    if let Err(answer) = said(&mut request).await {
        return answer;
    }
    let node = first(&request).to_owned();
    ordered(&site, DrainAsked { node, undo: true, ..DrainAsked::default() }).await
}

async fn drain_device(site: Rc<Site>, request: Request) -> Answer {
    of_device(site, request, DeviceAction::Drain).await
}

async fn undrain_device(site: Rc<Site>, request: Request) -> Answer {
    of_device(site, request, DeviceAction::Undrain).await
}

async fn check_device(site: Rc<Site>, request: Request) -> Answer {
    of_device(site, request, DeviceAction::Check).await
}

async fn of_device(site: Rc<Site>, mut request: Request, action: DeviceAction) -> Answer {
    if let Err(answer) = said(&mut request).await {
        return answer;
    }
    let [node, resource, slot] = request.named.as_slice() else { return wrong("a device is NODE/RESOURCE/NUMBER") };
    let asked = DeviceAsked {
        node: node.clone(),
        device: format!("{resource}:{slot}"),
        action,
        reason: REASON.into(),
        ..DeviceAsked::default()
    };
    ordered(&site, asked).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxiray_wire::state::{DrainTold, LeftOnNode};

    #[test]
    fn a_deadline_is_a_number_of_seconds_or_left_out() {
        assert_eq!(deadline(&json!({})), Ok(None));
        assert_eq!(deadline(&json!({"seconds": null})), Ok(None));
        assert_eq!(deadline(&json!({"seconds": 1.5})), Ok(Some(1_500)));
        for wrong in [json!("2"), json!(-1), json!(1e10), json!(true), json!([1])] {
            let said = deadline(&json!({"seconds": wrong}));
            assert!(said.as_ref().is_err_and(|why| why.contains("no number of seconds")), "{said:?}");
        }
    }

    #[test]
    fn the_page_hears_what_is_left_on_a_node() {
        let left = Some(LeftOnNode { actors: 2, ..LeftOnNode::default() });
        let report =
            StateReport { drained: Some(DrainTold { left, ..DrainTold::default() }), ..StateReport::default() };
        assert_eq!((told(&report)["left"]["actors"].as_u64(), told(&report)["done"].as_bool()), (Some(2), Some(true)));
    }
}
