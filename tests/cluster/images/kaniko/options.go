package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// registryOptions say how registries are reached; they serve the build and the push command.
type registryOptions struct {
	destinations                       []string
	insecure, insecurePull             bool
	skipTLSVerify, skipTLSVerifyPull   bool
	insecureRegistries                 []string
	skipTLSVerifyRegistries            []string
	mirrors                            []string
	skipDefaultFallback                bool
	skipPushPermissionCheck            bool
	pushRetry, imageDownloadRetry      int
	digestFile, imageNameAndDigestFile string
}

type options struct {
	registryOptions
	dockerfile, context, subPath string
	buildArgs, labels            []string
	noPush                       bool
	layoutPath                   string
	platform                     string
	ignorePaths                  []string
	cache                        bool
	cacheRepo                    string
}

func (o *registryOptions) flags(f *pflag.FlagSet) {
	f.StringArrayVarP(&o.destinations, "destination", "d", nil, "where to push the image; repeatable")
	f.BoolVar(&o.insecure, "insecure", false, "push over plain HTTP where TLS is not answered")
	f.BoolVar(&o.insecurePull, "insecure-pull", false, "pull over plain HTTP where TLS is not answered")
	f.BoolVar(&o.skipTLSVerify, "skip-tls-verify", false, "push without verifying certificates")
	f.BoolVar(&o.skipTLSVerifyPull, "skip-tls-verify-pull", false, "pull without verifying certificates")
	f.StringArrayVar(&o.insecureRegistries, "insecure-registry", nil, "registry reached over plain HTTP; repeatable")
	f.StringArrayVar(&o.skipTLSVerifyRegistries, "skip-tls-verify-registry", nil, "registry whose certificate is not verified; repeatable")
	f.StringArrayVar(&o.mirrors, "registry-mirror", nil, "asked before docker.io; repeatable")
	f.BoolVar(&o.skipDefaultFallback, "skip-default-registry-fallback", false, "never ask docker.io when there are mirrors")
	f.BoolVar(&o.skipPushPermissionCheck, "skip-push-permission-check", false, "do not check the right to push first")
	f.IntVar(&o.pushRetry, "push-retry", 0, "retries of the push")
	f.IntVar(&o.imageDownloadRetry, "image-download-retry", 0, "retries of reading the base image")
}

func (o *options) flags(f *pflag.FlagSet) {
	o.registryOptions.flags(f)
	f.StringVarP(&o.dockerfile, "dockerfile", "f", "Dockerfile", "path of the Dockerfile, from the context")
	f.StringVarP(&o.context, "context", "c", "/workspace/", "folder of the build context, as dir://PATH or PATH")
	f.StringVar(&o.subPath, "context-sub-path", "", "folder in the context to use as the context")
	f.StringArrayVar(&o.buildArgs, "build-arg", nil, "NAME=VALUE of an ARG; repeatable")
	f.StringArrayVar(&o.labels, "label", nil, "NAME=VALUE of a label; repeatable")
	f.BoolVar(&o.noPush, "no-push", false, "only build")
	f.StringVar(&o.layoutPath, "oci-layout-path", "", "where to write the image as an OCI layout")
	f.StringVar(&o.digestFile, "digest-file", "", "where to write the digest")
	f.StringVar(&o.imageNameAndDigestFile, "image-name-with-digest-file", "", "where to write NAME@DIGEST")
	f.StringVar(&o.platform, "custom-platform", "", "platform of the base image, OS/ARCHITECTURE")
	f.StringArrayVar(&o.ignorePaths, "ignore-path", nil, "path that no snapshot includes; repeatable")
	f.BoolVar(&o.cache, "cache", false, "keep and use the layers of RUN instructions")
	f.StringVar(&o.cacheRepo, "cache-repo", "", "repository that they are kept in")
	ignored(f)
}

// ignored are flags of the real executor that change how it works but not what it makes, or that the stand-in does not need.
func ignored(f *pflag.FlagSet) {
	for _, name := range []string{"cache-copy-layers", "cleanup", "force", "log-timestamp", "no-push-cache", "preserve-context",
		"push-ignore-immutable-tag-errors", "reproducible", "single-snapshot", "use-new-run", "materialize"} {
		f.Bool(name, false, "ignored by the stand-in")
	}
	for _, name := range []string{"cache-run-layers", "compressed-caching", "ignore-var-run", "skip-unused-stages"} {
		f.Bool(name, true, "ignored by the stand-in")
	}
	for _, name := range []string{"cache-dir", "cache-ttl", "compression", "compression-level", "image-fs-extract-retry",
		"kaniko-dir", "log-format", "snapshot-mode"} {
		f.String(name, "", "ignored by the stand-in")
	}
	f.StringP("verbosity", "v", "info", "ignored by the stand-in")
}

func rootCommand() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use: "executor",
		PreRunE: func(*cobra.Command, []string) error {
			return o.resolve()
		},
		Run: func(cmd *cobra.Command, _ []string) {
			if err := execute(cmd.Context(), &o); err != nil {
				fail(err)
			}
		},
	}
	o.flags(root.Flags())
	root.AddCommand(pushCommand())
	return root
}

// resolve checks the flags and makes the paths absolute.
func (o *options) resolve() error {
	if !o.noPush && len(o.destinations) == 0 {
		return errors.New("you must provide --destination, or use --no-push")
	}
	if o.cache && o.cacheRepo == "" {
		return errors.New("--cache needs --cache-repo: the stand-in derives none from a destination")
	}
	if scheme, path, found := strings.Cut(o.context, "://"); found {
		if scheme != "dir" {
			return fmt.Errorf("error resolving source context: the stand-in reads contexts from dir:// only, not from %s://", scheme)
		}
		o.context = path
	}
	context, err := filepath.Abs(filepath.Join(o.context, o.subPath))
	if err != nil {
		return err
	}
	o.context = context
	for _, path := range []string{o.dockerfile, filepath.Join(o.context, o.dockerfile)} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			o.dockerfile, err = filepath.Abs(path)
			return err
		}
	}
	return errors.New("error resolving dockerfile path: please provide a valid path to a Dockerfile within the build context with --dockerfile")
}
