//! Validates template kinds.

use ray_api::expand::{Compute, Denial, Extends, Templates, check_compute, check_extends};
use ray_api::template::{ClusterComputeTemplate, ComputeTemplate, ComputeTemplateSpec, ImageTemplate};
use ray_api::{image, validate};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Allowed, Asked, Context, Refusal, denial, refuse_new};

/// A ComputeTemplate or ClusterComputeTemplate.
///
/// # Errors
/// When a field is wrong or `extends` leads in a circle.
pub async fn validate_compute(context: &Context, asked: &Asked) -> Result<Allowed, Refusal> {
    let (spec, template) = compute(asked, &asked.object)?;
    let check = |spec: &ComputeTemplateSpec| {
        let fields = validate::compute_template(&asked.request.name, spec).into_iter();
        let fields = fields.map(|invalid| Denial {
            field: invalid.field,
            message: invalid.message,
        });
        fields.chain(check_compute(spec)).collect::<Vec<_>>()
    };
    let before = match &asked.old_object {
        Some(old) => check(&compute(asked, old)?.0),
        None => Vec::new(),
    };
    refuse_new(check(&spec), &before)?;
    if asked
        .old_object
        .as_ref()
        .is_some_and(|old| old.pointer("/spec/extends") == asked.object.pointer("/spec/extends"))
    {
        return Ok(Allowed::default());
    }
    let mut templates = Templates::default();
    // Ancestors that lead back here must meet the template as it will be.
    templates.insert_compute(template.needed(), Some(template.clone()));
    loop {
        let warnings = match check_extends(&template, &templates) {
            Extends::Sound => Vec::new(),
            Extends::Needs(needed) => {
                context.templates.read_into(&mut templates, needed, false).await?;
                continue;
            }
            Extends::Orphan(why) => vec![format!(
                "spec.extends: {why}; clusters cannot use the template until it does"
            )],
            Extends::Broken(message) => {
                return Err(Refusal::Invalid(vec![Denial {
                    field: "spec.extends".to_owned(),
                    message,
                }]));
            }
        };
        return Ok(Allowed {
            object: None,
            warnings,
        });
    }
}

fn compute(asked: &Asked, object: &Value) -> Result<(ComputeTemplateSpec, Compute), Refusal> {
    if asked.request.kind.kind == "ClusterComputeTemplate" {
        let template: ClusterComputeTemplate = typed(object)?;
        Ok((template.spec.compute.clone(), Compute::from(&template)))
    } else {
        let template: ComputeTemplate = typed(object)?;
        Ok((template.spec.clone(), Compute::from(&template)))
    }
}

/// An ImageTemplate, by the builder's rules and the platform team's.
///
/// # Errors
/// When a field is wrong or not allowed.
pub fn validate_image(context: &Context, asked: &Asked) -> Result<Allowed, Refusal> {
    let check = |object: &Value| {
        let template: ImageTemplate = typed(object)?;
        let name = template.metadata.name.as_deref().unwrap_or_default();
        let mut denials = image::validate(&template.spec);
        denials.extend(context.policy.check(asked.namespace(), name, &template.spec));
        let denials: Vec<_> = denials.into_iter().map(denial).collect();
        Ok::<_, Refusal>((denials, template))
    };
    let (new, template) = check(&asked.object)?;
    let old = match &asked.old_object {
        // An old object that does not read had no rule to hold to.
        Some(old) => check(old).map(|(denials, _)| denials).unwrap_or_default(),
        None => Vec::new(),
    };
    refuse_new(new, &old)?;
    let spec_changed = asked
        .old_object
        .as_ref()
        .is_none_or(|old| old.get("spec") != asked.object.get("spec"));
    let warnings = if spec_changed {
        image::warnings(&template.spec)
    } else {
        Vec::new()
    };
    Ok(Allowed {
        object: None,
        warnings,
    })
}

fn typed<T: DeserializeOwned>(object: &Value) -> Result<T, Refusal> {
    T::deserialize(object).map_err(|error| {
        let field = "spec".to_owned();
        Refusal::Invalid(vec![Denial {
            field,
            message: format!("does not read: {error}"),
        }])
    })
}
