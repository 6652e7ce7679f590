//! The platform team's rules for image templates, as flags.

use clap::ArgAction;
use ray_api::image::Policy;

/// Flags of both servers: the webhook denies at once what the operator would refuse to build.
#[derive(Clone, Debug, clap::Args)]
pub struct PolicyArgs {
    /// Images without a repository go below this, as `<default>/<namespace>/<name>`.
    #[arg(long)]
    pub default_repository: Option<String>,
    /// Secret, in the template's namespace, to push with where a template names none.
    #[arg(long)]
    pub default_push_secret: Option<String>,
    /// Prefixes that images may be pushed below; `{namespace}` stands for the template's namespace.
    #[arg(long, value_delimiter = ',')]
    pub allowed_repositories: Vec<String>,
    /// Prefixes of images to build on; all where absent.
    #[arg(long, value_delimiter = ',')]
    pub allowed_base_images: Vec<String>,
    /// Prefixes of package indexes; every one over https where absent.
    #[arg(long, value_delimiter = ',')]
    pub allowed_indexes: Vec<String>,
    /// Whether `spec.customCommands` may be used.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub allow_custom_commands: bool,
}

impl From<PolicyArgs> for Policy {
    fn from(args: PolicyArgs) -> Self {
        Self {
            default_repository: args.default_repository,
            default_push_secret: args.default_push_secret,
            allowed_repositories: args.allowed_repositories,
            allowed_base_images: args.allowed_base_images,
            allowed_indexes: args.allowed_indexes,
            allow_custom_commands: args.allow_custom_commands,
        }
    }
}
