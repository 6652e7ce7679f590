//! `explain cluster`: which field came from which template, at which generation.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use kube::Api;
use kube::api::DynamicObject;
use ray_api::expand::{GroupKey, Origin, Piece, Record, TemplateId, group, path};
use serde_json::{Value, json};

use crate::connection::ConnectionArgs;
use crate::error::Result;
use crate::kinds::Kind;
use crate::output::{self, Format};
use crate::table::{Layout, Row, column};

/// Flags of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show which field of a Ray cluster came from which template.
    #[command(alias = "raycluster")]
    Cluster(ClusterArgs),
}

#[derive(Debug, Args)]
struct ClusterArgs {
    /// Ray cluster.
    #[arg(add = crate::complete::clusters())]
    name: String,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value = "table", hide_default_value = true)]
    output: Format,
}

/// A filled field.
struct Field {
    group: String,
    path: String,
    value: Value,
    template: String,
    generation: String,
    note: &'static str,
}

pub(crate) async fn run(connection: &ConnectionArgs, args: &ExplainArgs) -> Result<()> {
    let What::Cluster(args) = &args.what;
    let connected = connection.connect().await?;
    let resource = Kind::RayCluster.resource();
    let api: Api<DynamicObject> =
        Api::namespaced_with(connected.client.clone(), &connected.namespace, &resource);
    let cluster = api.get(&args.name).await?;
    let object = serde_json::to_value(&cluster)?;
    let fields = fields(&object, &newest(&connected, &object).await);
    match args.output {
        Format::Json | Format::Yaml => {
            let list: Vec<Value> = fields
                .iter()
                .map(|f| json!({"group": f.group, "field": f.path, "value": f.value, "template": f.template, "generation": f.generation, "note": f.note}))
                .collect();
            output::object(args.output, &json!(list))
        }
        _ if fields.is_empty() => {
            output::note(&format!(
                "RayCluster {} was not filled in from any template.",
                args.name
            ));
            Ok(())
        }
        _ => {
            let rows: Vec<Row> = fields.into_iter().map(row).collect();
            let columns = vec![
                column("GROUP"),
                column("FIELD"),
                column("VALUE"),
                column("FROM"),
                column("GENERATION"),
                column("NOTE"),
            ];
            output::text(&Layout::new(columns, false).render(true, &rows))
        }
    }
}

/// Values are shown in one line of bearable length.
const WIDTH: usize = 60;

fn row(field: Field) -> Row {
    let text = field
        .value
        .as_str()
        .map_or_else(|| field.value.to_string(), str::to_owned);
    let shown = if text.chars().count() > WIDTH {
        text.chars().take(WIDTH).chain("…".chars()).collect()
    } else {
        text
    };
    vec![
        field.group.into(),
        field.path.into(),
        shown.into(),
        field.template.into(),
        field.generation.into(),
        field.note.into(),
    ]
}

fn fields(object: &Value, newest: &Newest) -> Vec<Field> {
    let record = Record::of(object).unwrap_or_default();
    let mut fields = Vec::new();
    for (key, group) in record.groups() {
        let now = group::get(object, &key);
        for piece in &group.filled.pieces {
            let template = group.template(piece.from);
            fields.push(field(&name_of(&key), piece, template, now, newest));
        }
    }
    for piece in &record.cluster.pieces {
        let image = record.templates().find(|id| id.kind == "ImageTemplate");
        fields.push(field(
            "cluster",
            piece,
            image.filter(|_| piece.from == Origin::Image),
            Some(object),
            newest,
        ));
    }
    fields
}

fn name_of(key: &GroupKey) -> String {
    match key {
        GroupKey::Head => "head".to_owned(),
        GroupKey::Worker(name) => name.clone(),
    }
}

fn field(
    group: &str,
    piece: &Piece,
    template: Option<&TemplateId>,
    now: Option<&Value>,
    newest: &Newest,
) -> Field {
    let found = now.and_then(|now| path::get(now, &piece.at.0, &piece.value));
    let stale = template.is_some_and(|id| newest.get(&key(id)).is_some_and(|latest| *latest > id.generation));
    let note = match found {
        None => "removed since",
        // The API server adds defaults inside a filled value.
        Some(found) if !path::contains(found, &piece.value) => "changed since",
        Some(_) if piece.overridden => "overridden",
        Some(_) if stale => "a newer generation exists",
        Some(_) => "",
    };
    Field {
        group: group.to_owned(),
        path: piece.at.to_string(),
        // Of a value that others were filled into, only its own part.
        value: found
            .filter(|found| !path::contains(found, &piece.value))
            .unwrap_or(&piece.value)
            .clone(),
        template: template
            .map(|id| format!("{}/{}", id.kind, id.name))
            .unwrap_or_default(),
        generation: template
            .and_then(|id| id.generation)
            .map(|g| g.to_string())
            .unwrap_or_default(),
        note,
    }
}

/// Generations of the templates as they are now.
type Newest = BTreeMap<(String, String), Option<i64>>;

fn key(id: &TemplateId) -> (String, String) {
    (id.kind.clone(), id.name.clone())
}

/// Templates that may not be read, or are gone, are left out.
async fn newest(connected: &crate::connection::Connection, object: &Value) -> Newest {
    let record = Record::of(object).unwrap_or_default();
    let mut newest = Newest::new();
    for id in record.templates() {
        if newest.contains_key(&key(id)) {
            continue;
        }
        let Some(kind) = Kind::parse(&id.kind) else {
            continue;
        };
        let resource = kind.resource();
        let api: Api<DynamicObject> = match &id.namespace {
            Some(namespace) => Api::namespaced_with(connected.client.clone(), namespace, &resource),
            None => Api::all_with(connected.client.clone(), &resource),
        };
        if let Ok(found) = api.get_metadata(&id.name).await {
            newest.insert(key(id), found.metadata.generation);
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;
    use ray_api::expand::{Compute, Decisions, Needed, Request, Templates};
    use ray_api::template::v1alpha1::ComputeTemplate;

    fn expanded() -> Value {
        let template: ComputeTemplate = serde_json::from_value(json!({
            "metadata": {"name": "small", "namespace": "n", "uid": "u", "generation": 3},
            "spec": {"resources": {"limits": {"memory": "1Gi"}}, "nodeSelector": {"pool": "a"}},
        }))
        .unwrap();
        let object =
            json!({"metadata": {"name": "c"}, "spec": {"headGroupSpec": {"computeTemplate": "small"}}});
        let request = Request {
            namespace: "n",
            object: &object,
            old_object: None,
            dry_run: false,
            field_manager: None,
        };
        let mut templates = Templates::default();
        let needed = Needed::Compute {
            namespace: "n".into(),
            name: "small".into(),
        };
        templates.insert_compute(needed, Some(Compute::from(&template)));
        Decisions::of(request).expand(&templates).unwrap().object
    }

    #[test]
    fn each_filled_field_names_its_template_and_what_became_of_it() {
        let mut object = expanded();
        let note = |object: &Value, part: &str, newest: &Newest| {
            let fields = fields(object, newest);
            let field = fields
                .into_iter()
                .find(|field| field.path.contains(part))
                .unwrap();
            assert_eq!(
                (field.template.as_str(), field.generation.as_str()),
                ("ComputeTemplate/small", "3")
            );
            field.note
        };
        assert_eq!(note(&object, "nodeSelector", &Newest::new()), "");
        let newer = Newest::from([(("ComputeTemplate".into(), "small".into()), Some(4))]);
        assert_eq!(note(&object, "nodeSelector", &newer), "a newer generation exists");
        *object
            .pointer_mut("/spec/headGroupSpec/template/spec/nodeSelector/pool")
            .unwrap() = "b".into();
        assert_eq!(note(&object, "nodeSelector", &Newest::new()), "changed since");
    }
}
