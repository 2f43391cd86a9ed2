//! Whether a label was set for a container or comes from its image.

use std::collections::HashMap;

use bollard::models::{ContainerInspectResponse, ImageInspect};
use tokio::time::timeout;

use crate::Result;
use crate::engine::error::engine_message;
use crate::engine::{ANSWER_TIME, Engine};

/// Where a label of a container comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelOrigin {
    /// From the person who started the container.
    Container,
    /// From its image: engines copy an image's labels to its containers.
    Image,
    /// Unknown, for this reason.
    Unknown(String),
    /// The container has no such label.
    Missing,
}

impl Engine {
    /// Finds out where a label of a container comes from, `NAME` or `NAME=VALUE`. A value that the image
    /// has too counts as the image's.
    pub(crate) async fn label_origin(&self, id: &str, label: &str) -> Result<LabelOrigin> {
        let Some(container) = self.inspect(id).await? else { return Ok(LabelOrigin::Missing) };
        let Some((name, value)) = find(label, labels_of(&container)) else {
            return Ok(LabelOrigin::Missing);
        };
        // By its id: the name may belong to another image by now.
        let Some(image) = container.image.as_deref().filter(|image| !image.is_empty()) else {
            return Ok(LabelOrigin::Unknown("the engine doesn't report its image".to_owned()));
        };
        let inspect = self.api().await?.inspect_image(image);
        let image = match timeout(ANSWER_TIME, inspect).await {
            Ok(Ok(image)) => image,
            Ok(Err(error)) => return Ok(LabelOrigin::Unknown(engine_message(&error))),
            Err(_) => return Err(self.silent()),
        };
        Ok(match labels_of_image(&image).and_then(|labels| labels.get(name)) {
            Some(of_image) if of_image == value => LabelOrigin::Image,
            Some(_) | None => LabelOrigin::Container,
        })
    }
}

fn labels_of(container: &ContainerInspectResponse) -> Option<&HashMap<String, String>> {
    container.config.as_ref()?.labels.as_ref()
}

fn labels_of_image(image: &ImageInspect) -> Option<&HashMap<String, String>> {
    image.config.as_ref()?.labels.as_ref()
}

/// The label, with its value, if the container has it.
fn find<'a>(
    label: &'a str,
    labels: Option<&'a HashMap<String, String>>,
) -> Option<(&'a str, &'a str)> {
    let (name, wanted) = match label.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (label, None),
    };
    let value = labels?.get(name)?.as_str();
    wanted.is_none_or(|wanted| wanted == value).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_found_by_its_name_and_by_its_value_too() {
        let labels = HashMap::from([("keybridge".to_owned(), "on=1".to_owned())]);
        for (label, is_found) in [
            ("keybridge", true),
            ("keybridge=on=1", true),
            ("keybridge=on", false),
            ("keybridge=", false),
            ("key", false),
            ("", false),
        ] {
            let found = is_found.then_some(("keybridge", "on=1"));
            assert_eq!(find(label, Some(&labels)), found, "{label}");
        }
        assert_eq!(find("keybridge", None), None);
    }
}
