//! May this user use that template? Asked of the API server, for the verb `use`.

use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use ray_api::expand::Needed;
use ray_api::meta::TEMPLATES_GROUP;

/// The first of `templates` that the user may not use.
///
/// # Errors
/// When the API server does not answer.
pub async fn first_forbidden<'a>(
    client: &Client,
    user: &UserInfo,
    templates: &'a [Needed],
) -> kube::Result<Option<&'a Needed>> {
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    for template in templates {
        let review = SubjectAccessReview {
            spec: question(user, template),
            ..Default::default()
        };
        let answer = api.create(&PostParams::default(), &review).await?;
        if !answer.status.is_some_and(|status| status.allowed) {
            return Ok(Some(template));
        }
    }
    Ok(None)
}

fn question(user: &UserInfo, template: &Needed) -> SubjectAccessReviewSpec {
    let resource = match template {
        Needed::Compute { .. } => "computetemplates",
        Needed::ClusterCompute { .. } => "clustercomputetemplates",
        Needed::Image { .. } => "imagetemplates",
    };
    SubjectAccessReviewSpec {
        user: user.username.clone(),
        uid: user.uid.clone(),
        groups: user.groups.clone(),
        extra: user.extra.clone(),
        resource_attributes: Some(ResourceAttributes {
            group: Some(TEMPLATES_GROUP.to_owned()),
            resource: Some(resource.to_owned()),
            verb: Some("use".to_owned()),
            namespace: template.namespace().map(str::to_owned),
            name: Some(template.name().to_owned()),
            ..Default::default()
        }),
        ..Default::default()
    }
}
